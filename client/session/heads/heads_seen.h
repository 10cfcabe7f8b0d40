// Keeps the signed heads of the ledger that a session was shown (wire/proof/head_file.h): the
// first, the last, and one every few seconds between.
//
// Threads: one at a time. Blocks for a write of a line.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "proto/cloud.pb.h"

namespace outboard::session {

class HeadsSeen {
 public:
  using Clock = std::chrono::steady_clock;

  // `file` empty: keeps none.
  HeadsSeen(std::string file, std::string target)
      : file_(std::move(file)), target_(std::move(target)) {}

  // Takes the heads out of what the gateway sent. Returns a line for people where one is not what
  // its gateway signed, or cannot be kept; the first time alone.
  std::optional<std::string> Note(const proto::ServerFrame& frame, Clock::time_point now);
  // Keeps the last one.
  std::optional<std::string> End();

 private:
  std::optional<std::string> Keep();

  const std::string file_;
  const std::string target_;
  std::optional<proto::LedgerHead> waiting_;  // the last one, if it is not kept yet
  std::string last_signature_;
  std::optional<Clock::time_point> kept_at_;
  bool told_ = false;
};

}  // namespace outboard::session
