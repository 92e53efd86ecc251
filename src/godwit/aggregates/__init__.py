"""Aggregates: one file each, with all that Godwit knows of it.

Names, types and nulls are Spark's, which here means: a sum of integers is a long and wraps around
on overflow, as Spark's does outside of ANSI mode; a decimal that outgrows its type fails the query;
a sum of no values is null; `min` and `max` skip nulls and take NaN for the largest number; `first`
and `last` do not skip nulls. Only the estimates of sketches are our own.
"""
