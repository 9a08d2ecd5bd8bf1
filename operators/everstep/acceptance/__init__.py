"""Whether a real project behaves as Everstep relies on: `everstep acceptance`, item by item."""
