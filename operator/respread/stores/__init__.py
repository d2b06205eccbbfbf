"""The watched kinds and the stores for their objects, shared by the operator and the commands."""
