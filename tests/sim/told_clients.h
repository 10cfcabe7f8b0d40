// What clients were told of their sessions, by all gateways: where each session resumes, which
// epoch it is in, and how far it is. What a client repeats after a fault is timed for M5 (books.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "gateway/ledger/ids.h"
#include "proto/cloud.pb.h"
#include "tests/sim/books.h"
#include "tests/sim/world.h"

namespace outboard::sim {

class ToldClients {
 public:
  ToldClients(World* world, Books* books) : world_(world), books_(books) {}

  void GatewayStarts(uint64_t number) {
    gateway_ = number;
    done_.clear();
  }
  // The gateway has gone, and with it what was being repeated.
  void RepeatNothing() { replays_.clear(); }

  // A frame is on its way to a client, whose session is `session` from Opened on. Checks the
  // position at which the session resumes, and that its epoch was used by no earlier gateway.
  // A client that has left repeats nothing.
  void Look(const proto::ServerFrame& frame, std::string& session, bool has_client) {
    for (const proto::ServerItem& item : frame.items()) {
      if (item.has_opened()) {
        session = item.opened().session_id();
        const auto [told, is_first] = epochs_.try_emplace(session, frame.epoch(), gateway_);
        if (!is_first && told->second.second != gateway_ && frame.epoch() <= told->second.first)
          world_->Broken("epoch ", frame.epoch(), " begins again");
        told->second = {frame.epoch(), gateway_};
        const uint64_t applied = applied_ = item.opened().applied_seq();
        EndReplay(session);
        if (books_->WasCutOff(*gateway::SessionId::FromBytes(session))) done_[session] = 0;
        if (applied < done_[session]) {
          world_->Count(applied > 0 ? "from a snapshot" : "from the start");
          if (applied > 0 && item.opened().devices() > 1) world_->Count("group from a snapshot");
          if (has_client) replays_[session] = world_->now();
        }
      }
      // Of a client that repeats nothing: it did not make what came before.
      if (item.has_kept() && !session.empty()) {
        replays_.erase(session);
        done_[session] = applied_;
      }
      if (!item.has_done() || session.empty()) continue;
      uint64_t& done = done_[session];
      if (item.done().through_seq() >= done) EndReplay(session);
      done = std::max(done, item.done().through_seq());
    }
  }

  // At the point reached before, or when nobody is there to repeat it.
  void EndReplay(const std::string& session) {
    const auto replay = replays_.find(session);
    if (replay == replays_.end()) return;
    books_->Repeated(*gateway::SessionId::FromBytes(session), replay->second);
    replays_.erase(replay);
  }

 private:
  World* const world_;
  Books* const books_;
  uint64_t gateway_ = 0;
  // By session: the last sequence number that was told as done; the last epoch, and by which
  // gateway; since when it repeats.
  std::map<std::string, uint64_t> done_;
  std::map<std::string, std::pair<uint64_t, uint64_t>> epochs_;
  std::map<std::string, int64_t> replays_;
  uint64_t applied_ = 0;  // of the last Opened
};

}  // namespace outboard::sim
