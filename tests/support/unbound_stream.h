// A server's stream without a call: accepts frames, writes nothing, and never ends. Tests the code
// between two streams without a network.
#pragma once

#include <utility>

#include "gateway/data_path/endpoints.h"
#include "gateway/streams/stream.h"
#include "proto/cloud.pb.h"

namespace outboard::test {

template <typename In, typename Out>
class UnboundStream final : public gateway::Stream<In, Out> {
 private:
  bool OnMessage(In) override { return true; }
  void OnReadEnd() override {}
  void OnGone() override {}
};

// As a client, and as the stream for its large values.
class UnboundClient final : public gateway::ClientEndpoint, public gateway::ValuesEndpoint {
 public:
  void Send(proto::ServerFrame frame) override { stream_.Send(std::move(frame)); }
  void End(absl::Status why) override { stream_.End(std::move(why)); }
  void SendLast(proto::ServerFrame frame, absl::Status why) override {
    stream_.SendLast(std::move(frame), std::move(why));
  }
  bool AskWritable() override { return stream_.AskWritable(); }
  void ResumeReading() override {}
  bool Hold() override { return stream_.Hold(); }
  void Unhold() override { stream_.Unhold(); }
  size_t queued_bytes() const { return stream_.queued_bytes(); }

 private:
  UnboundStream<proto::ClientFrame, proto::ServerFrame> stream_;
};

// As an executor.
class UnboundExecutor final : public gateway::ExecutorEndpoint {
 public:
  void Send(proto::ClientFrame frame) override {
    sent_ = frame;
    stream_.Send(std::move(frame));
  }
  const proto::ClientFrame& sent() const { return sent_; }  // the last
  void End(absl::Status why) override { stream_.End(std::move(why)); }
  bool AskWritable() override { return stream_.AskWritable(); }
  void ResumeReading() override { ++resumed_; }
  int resumed() const { return resumed_; }
  size_t queued_bytes() const { return stream_.queued_bytes(); }

 private:
  UnboundStream<proto::ServerFrame, proto::ClientFrame> stream_;
  proto::ClientFrame sent_;
  int resumed_ = 0;
};

}  // namespace outboard::test
