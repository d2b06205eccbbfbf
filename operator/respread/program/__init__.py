"""The program that runs in the pod, and what the command lines of both packages are declared with."""
