// Statistics of a session: for the program, its progress line and tests.
//
// Counts begin with the session. Times are in the unit in the field's name, money in millionths of
// a dollar. Returned by Session::stats(), from any thread.
#pragma once

#include <cstdint>
#include <string>

namespace outboard::session {

struct Stats {
  uint64_t runs = 0;
  uint64_t steps = 0;                 // as runs, but a Run repeated K times counts K
  uint64_t blocking_round_trips = 0;  // a caller slept for an answer
  uint64_t window_waits = 0;  // a caller slept because the window was full: the cloud was busy
  uint64_t window_items = 0;  // how many items may be in flight now (core/send_window.h)
  double round_trip_ms = 0;   // the recent minimum: the network and one step; 0: unknown
  uint64_t frames_up = 0;
  uint64_t bytes_up = 0;  // serialised frames and blob pieces
  uint64_t bytes_down = 0;
  uint64_t bytes_down_apart = 0;  // of bytes_down: over the connection for large values
  uint64_t device_time_us = 0;
  uint64_t kernels_launched = 0;
  uint64_t operations = 0;      // arithmetic on floats in all kernels, estimated
  uint64_t bytes_accessed = 0;  // if each kernel reads or writes every buffer of its once
  uint64_t cost_micro_usd = 0;  // as of the last Done; final after Close
  uint32_t devices = 1;         // that it was granted
  double seconds_billed = 0;    // of all of them together, to the millisecond
  double seconds_open = 0;  // by this process's own clock, from Opened to now or to Close
  uint64_t price_per_hour_micro_usd = 0;
  std::string session_id;    // 16 bytes; empty before it is open
  std::string session_name;  // empty: it has none
  std::string device;  // "cpu: Xeon ...", as the worker reported, for people
};

}  // namespace outboard::session
