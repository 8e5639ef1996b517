#!/bin/bash
# Asks the server in this container to shut down; it is PID 1.
exec kill -TERM 1
