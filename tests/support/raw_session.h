// A client without checks: sends frames exactly as the test makes them, on a stream of its own.
#pragma once

#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "client/session/session.h"
#include "proto/cloud.grpc.pb.h"
#include "wire/limits.h"
#include "wire/status.h"

namespace outboard::test {

class RawSession {
 public:
  explicit RawSession(const session::SessionOptions& options)
      : RawSession(grpc::CreateChannel(options.target, grpc::InsecureChannelCredentials()),
                   options.key) {}
  RawSession(const std::shared_ptr<grpc::Channel>& channel, const std::string& key)
      : stub_(proto::Cloud::NewStub(channel)) {
    if (!key.empty()) context_.AddMetadata("authorization", "Bearer " + key);
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    stream_ = stub_->Session(&context_);
  }
  // Sends Close, so that its device is free on return.
  ~RawSession() {
    if (finished_) return;
    proto::ClientItem close;
    close.mutable_close();
    if (epoch_ == 0 || !Send({close})) context_.TryCancel();
    End().IgnoreError();
  }

  // Sends Open and waits for Opened, unless `or_queued` (then call AwaitOpened). With the token of
  // a session: resumes it.
  void Open(const std::string& resume_token = "", bool or_queued = false) {
    proto::ClientItem item;
    proto::Open& open = *item.mutable_open();
    open.set_resume_token(resume_token);
    for (proto::VersionRange* range : {open.mutable_protocol(), open.mutable_graph_schema()}) {
      range->set_min(1);
      range->set_max(1);
    }
    Send({item});
    if (!or_queued) AwaitOpened();
  }
  // True if it is opened; false if it waits for a device, or has ended.
  bool IsOpenedOrQueued() {
    bool queued = false;
    proto::ServerFrame frame;
    while (epoch_ == 0 && !queued && stream_->Read(&frame))
      for (const proto::ServerItem& answer : frame.items()) {
        queued |= answer.notice().kind() == proto::Notice::QUEUED;
        if (!answer.has_opened()) continue;
        epoch_ = frame.epoch();
        opened_ = answer.opened();
      }
    return epoch_ != 0;
  }
  void AwaitOpened() {
    while (!IsOpenedOrQueued() && queued_reads_++ < kNoticesMax) {
    }
    EXPECT_GT(epoch_, 0u);
  }
  const proto::Opened& opened() const { return opened_; }
  const proto::Done& last_done() const { return last_done_; }  // that Next has seen

  // Breaks the stream without a word.
  void Cancel() {
    context_.TryCancel();
    End().IgnoreError();
  }

  bool Send(std::vector<proto::ClientItem> items) { return Send(epoch_, std::move(items)); }
  bool Send(uint64_t epoch, std::vector<proto::ClientItem> items) {
    proto::ClientFrame frame;
    frame.set_epoch(epoch);
    for (proto::ClientItem& item : items) *frame.add_items() = std::move(item);
    return stream_->Write(frame);
  }

  // Reads until the next Failed, or the next value's bytes; skips everything else. False at the end
  // of the stream.
  struct Answer {
    proto::Failed failed;
    std::string value;
    uint64_t seq = 0;
  };
  bool Next(Answer& answer) {
    while (true) {
      for (; at_ < frame_.items_size(); ++at_) {
        const proto::ServerItem& item = frame_.items(at_);
        if (item.has_failed()) {
          answer = {item.failed(), "", item.failed().seq()};
          ++at_;
          return true;
        }
        if (item.has_done()) last_done_ = item.done();
        if (item.done().values_size() > 0) {
          answer = {{}, item.done().values(0).data(), item.done().values(0).seq()};
          ++at_;
          return true;
        }
      }
      at_ = 0;
      frame_.Clear();
      if (!stream_->Read(&frame_)) return false;
    }
  }

  // Reads to the end of the stream; returns the status that ended the session.
  absl::Status End() {
    while (stream_->Read(&frame_)) {
    }
    finished_ = true;
    return wire::FromGrpc(stream_->Finish());
  }

 private:
  static constexpr int kNoticesMax = 100;  // of a session that waits for a device
  std::unique_ptr<proto::Cloud::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<proto::ClientFrame, proto::ServerFrame>> stream_;
  uint64_t epoch_ = 0;
  int queued_reads_ = 0;
  proto::Opened opened_;
  proto::Done last_done_;
  proto::ServerFrame frame_;
  int at_ = 0;
  bool finished_ = false;
};

}  // namespace outboard::test
