"""The controllers' listener: its authority, its certificates and the logins of those who connect to it."""
