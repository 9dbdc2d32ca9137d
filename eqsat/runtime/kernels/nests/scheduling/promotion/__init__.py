"""Elements that the threads of a block read again, copied to shared memory."""
