// A client's core whose session is open, and frames of a server for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/session/core/session_core.h"

namespace outboard::session {

inline proto::ServerFrame OpenedFrame(uint64_t epoch, uint64_t applied = 0, uint32_t items = 0) {
  proto::ServerFrame frame;
  frame.set_epoch(epoch);
  proto::Opened& opened = *frame.add_items()->mutable_opened();
  opened.set_resume_token(std::string(16, 't'));
  opened.set_applied_seq(applied);
  opened.set_protocol(wire::kProtocolVersion);
  if (items > 0) {
    opened.mutable_window()->set_items_in_flight_max(items);
    opened.mutable_window()->set_bytes_in_flight_max(100);
  }
  return frame;
}

inline proto::ServerFrame DoneFrame(uint64_t epoch, uint64_t through) {
  proto::ServerFrame frame;
  frame.set_epoch(epoch);
  frame.add_items()->mutable_done()->set_through_seq(through);
  return frame;
}

inline proto::ServerFrame ValueFrame(uint64_t epoch, uint64_t seq, uint64_t total, uint64_t offset,
                              std::string data) {
  proto::ServerFrame frame;
  frame.set_epoch(epoch);
  proto::Value& value = *frame.add_items()->mutable_done()->add_values();
  value.set_seq(seq);
  value.set_total_bytes(total);
  value.set_offset(offset);
  value.set_data(data);
  return frame;
}

struct Opened : SessionCore {
  explicit Opened(uint32_t items = 0) {
    Open(1);
    TakeFrames();
    Get(OpenedFrame(1, 0, items));
  }
  void Get(proto::ServerFrame frame) { OnFrame(frame); }
  std::vector<proto::ClientItem> Items() {
    std::vector<proto::ClientItem> items;
    for (auto& frame : TakeFrames())
      items.insert(items.end(), frame.items().begin(), frame.items().end());
    return items;
  }
};

inline RunRequest OfGraph(char name, std::vector<uint32_t> fetch = {}) {
  RunRequest request;
  request.graph_id.fill(static_cast<uint8_t>(name));
  request.graph = std::make_shared<const std::string>("graph");
  request.inputs = {1};
  request.outputs = {2, 3};
  request.fetch = std::move(fetch);
  return request;
}

}  // namespace outboard::session
