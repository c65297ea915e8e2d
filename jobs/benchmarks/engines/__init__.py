"""What a storage gives by itself: engines that read and write (built-in, fio, IOR), and the file they do it with."""
