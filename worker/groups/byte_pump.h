// Passes bytes from one stream socket to another, in one direction, without waiting: what the one
// has and the other takes. The end of the one becomes the end of the other.
//
// Threads: one.
#pragma once

#include <cstddef>
#include <string>

namespace outboard::worker {

class BytePump {
 public:
  BytePump(int from, int to) : from_(from), to_(to) {}

  // Moves what can be moved now, up to some bytes, so that other pumps get their turn.
  void Move();

  // What has to happen before Move moves more.
  bool awaits_bytes() const { return !done_ && !from_ended_ && pending_.empty(); }
  bool awaits_room() const { return !done_ && !pending_.empty(); }
  bool from_ended() const { return from_ended_; }
  int error() const { return error_; }  // of errno, with which `from` ended; 0: in order
  bool done() const { return done_; }   // nothing is left to move, and nothing will be

 private:
  bool Flush();   // false: `to` takes no more now
  void Broken();  // `to` takes no more at all

  int from_, to_;
  std::string pending_;  // what `from` gave and `to` did not take
  size_t sent_ = 0;      // of pending_
  bool from_ended_ = false, done_ = false;
  int error_ = 0;
};

}  // namespace outboard::worker
