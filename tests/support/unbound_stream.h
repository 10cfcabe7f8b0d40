// A server's stream that no call is bound to: takes what is sent, writes nothing, and never ends.
// For the code between two streams, without a network.
#pragma once

#include <utility>

#include "gateway/data_path/executor_side.h"
#include "gateway/data_path/stream.h"

namespace outboard::test {

template <typename In, typename Out>
class UnboundStream final : public gateway::Stream<In, Out> {
 private:
  bool OnMessage(In) override { return true; }
  void OnReadEnd() override {}
  void OnGone() override {}
};

// As its executor's side of the relay.
class UnboundExecutor final : public gateway::ExecutorSide {
 public:
  void Send(proto::ClientFrame frame) override {
    sent_ = frame;
    stream_.Send(std::move(frame));
  }
  const proto::ClientFrame& sent() const { return sent_; }  // the last
  void End(absl::Status why) override { stream_.End(std::move(why)); }
  bool AskDrained() override { return stream_.AskDrained(); }
  void ResumeReading() override { ++resumed_; }
  int resumed() const { return resumed_; }
  size_t queued_bytes() const { return stream_.queued_bytes(); }

 private:
  UnboundStream<proto::ServerFrame, proto::ClientFrame> stream_;
  proto::ClientFrame sent_;
  int resumed_ = 0;
};

}  // namespace outboard::test
