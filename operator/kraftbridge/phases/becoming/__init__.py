"""What a broker is after its restart, compared with what it was; and what a start in KRaft mode will refuse. Pure."""
