"""What runs in the processes of functions: a zygote with the imports done, and its workers."""
