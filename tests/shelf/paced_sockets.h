// Limits what each TCP connection of a process sends, by SO_MAX_PACING_RATE: the kernel's TCP
// spaces its packets, without a queue discipline and without a process between the ends.
//
// Of this process, once SetSocketRate has been called; of another one whose environment has
//
//   LD_PRELOAD=.../libpaced_sockets.so SHELF_BYTES_PER_S=125000000
//
// Connections that a listening socket accepts have the rate of that socket.
#pragma once

#include <cstdint>

namespace outboard::test {

// Of sockets made from now on; 0: no limit. Threads: any.
void SetSocketRate(uint64_t bytes_per_s);

}  // namespace outboard::test
