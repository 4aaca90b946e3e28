"""The common vocabulary: values, names, numbers, limits and interfaces, without behaviour."""
