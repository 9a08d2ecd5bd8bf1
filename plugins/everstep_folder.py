"""For deployments that put this folder on Airflow's plugins path instead of installing the wheel's entry point."""

from everstep_plugin.plugin import EverstepPlugin as EverstepPlugin
