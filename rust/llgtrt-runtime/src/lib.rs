//! Sequence table, step loop, output queues, statistics and watchdog over any engine
