"""The demo: a real training loses a slice and steps forward, from Airflow to retention, on one machine."""
