"""The Job controller: pods of a Job, its failure policy and its status."""
