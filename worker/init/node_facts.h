// What a machine is, from the files in which its kernel says so.
//
// Threads: any; reads files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/fleet.pb.h"

namespace outboard::worker {

// A serial number as certificates and file names take it (gateway/base/node_serial.h): other bytes
// as '_', 56 at most. "" of one that says nothing, such as "To Be Filled By O.E.M.".
std::string CleanSerial(std::string_view text);

// `root`: "" on the machine itself; a folder in its place in tests. The serial number is the
// system's, else its board's, else its UUID, else that of its first network device; "" where it has
// none of them.
proto::NodeFacts ReadNodeFacts(const std::string& root = "");

// Up to `bytes_max` of a file, "" where it cannot be read.
std::string FileText(const std::string& path, size_t bytes_max = 1 << 20);

// What the kernel is to keep free (vm.min_free_kbytes) on a machine on which it keeps `now_bytes`:
// what it keeps without huge pages, 4 * sqrt(KiB) KiB (mm/page_alloc.c), and at least 8 MiB. With
// them it is tens of MiB more, which no session would have. Never more than now.
uint64_t BytesKeptFree(uint64_t memory_bytes, uint64_t now_bytes);

// Names of network devices that are hardware, in alphabetical order.
std::vector<std::string> NetworkDevices(const std::string& root = "");

}  // namespace outboard::worker
