"""The room's decisions are ``heronry.schedulers.containers``, which every scheduler shares."""
