// A worker that computes nothing: each output of a Run is a copy of its first input. Speaks
// fleet.proto over any channel, with plain blocking streams, so that the gateway and the transport
// are tested without an engine or processes.
#pragma once

#include <grpcpp/channel.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "proto/fleet.grpc.pb.h"
#include "wire/limits.h"
#include "wire/merkle.h"
#include "wire/status.h"
#include "wire/version.h"

namespace outboard {

class FakeWorker {
 public:
  FakeWorker(std::shared_ptr<grpc::Channel> channel, std::string fleet_secret, int devices = 1)
      : stub_(proto::Fleet::NewStub(channel)), fleet_secret_(std::move(fleet_secret)) {
    join_context_.AddMetadata("authorization", "Bearer " + fleet_secret_);
    join_ = stub_->Join(&join_context_);
    proto::WorkerEvent hello;
    proto::Register& reg = *hello.mutable_register_();
    reg.set_name("fake");
    reg.set_identity("the identity of the fake worker.");
    wire::SetRange(wire::kProtocolOfWorkers, *reg.mutable_protocol());
    for (int i = 0; i < devices; ++i) reg.add_devices()->set_kind("fake");
    join_->Write(hello);
    reader_ = std::thread([this] { ReadCommands(); });
    beater_ = std::thread([this] { Beat(); });
  }
  ~FakeWorker() { Stop(); }

  // Like a machine that is switched off: every stream breaks.
  void Stop() {
    if (stopped_.exchange(true)) return;
    join_context_.TryCancel();
    {
      std::lock_guard lock(mutex_);
      for (auto& [id, executor] : executors_) executor->context.TryCancel();
    }
    reader_.join();  // no executor is added from here on
    beater_.join();
    join_->Finish();
    for (auto& [id, executor] : executors_) executor->thread.join();
    for (const auto& executor : replaced_) executor->thread.join();
  }

  // Ends the executors with a reason, as a supervisor does.
  void CrashExecutors(const std::string& message) {
    std::lock_guard lock(mutex_);
    for (auto& [id, executor] : executors_) {
      proto::WorkerEvent event;
      event.mutable_session_ended()->set_session_id(id);
      event.mutable_session_ended()->set_code(14);
      event.mutable_session_ended()->set_message(message);
      join_->Write(event);
      executor->context.TryCancel();
    }
  }

  // The status of a Keep for this session, by its executor with this key.
  absl::Status Keep(const std::string& session, proto::KeepRequest::What what,
                    const std::string& key) {
    grpc::ClientContext context;
    {
      std::lock_guard lock(mutex_);
      context.AddMetadata("outboard-session", wire::ToHex(session));
      context.AddMetadata("outboard-token", wire::ToHex(tokens_[session]));
    }
    context.AddMetadata("authorization", "Bearer " + key);
    proto::KeepRequest request;
    request.set_what(what);
    request.set_name("kept");
    request.set_manifest_root(std::string(32, 'm'));
    request.set_seq(1);
    proto::KeepReply reply;
    return wire::FromGrpc(stub_->Keep(&context, request, &reply));
  }

  int runs() const { return runs_; }
  int graphs() const { return graphs_; }
  uint64_t put_bytes() const { return put_bytes_; }

 private:
  struct Array {
    uint32_t dtype = 0;
    std::vector<uint64_t> dims;
    std::string bytes;
  };
  struct Executor {
    std::thread thread;
    grpc::ClientContext context;
    uint64_t applied = 0;
    std::map<uint64_t, Array> arrays;
    std::map<std::string, std::pair<uint32_t, std::string>> refused;
    std::vector<proto::Value> kept;
  };

  void ReadCommands() {
    proto::GatewayCommand command;
    while (join_->Read(&command)) {
      if (!command.has_assign()) continue;
      std::lock_guard lock(mutex_);
      if (stopped_) return;  // Stop has cancelled the executors that there were, and awaits them
      tokens_[command.assign().session_id()] = command.assign().attach_token();
      auto& executor = executors_[command.assign().session_id()];
      if (executor != nullptr) {  // a session that is assigned again: its thread may still run
        executor->context.TryCancel();
        replaced_.push_back(std::move(executor));
      }
      executor = std::make_unique<Executor>();
      executor->thread = std::thread(
          [this, &executor = *executor, assign = command.assign()] { Run(executor, assign); });
    }
  }

  void Beat() {
    for (uint64_t beat = 1; !stopped_; ++beat) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      proto::WorkerEvent event;
      event.mutable_heartbeat()->set_beat(beat);
      std::lock_guard lock(mutex_);
      for (auto& [id, executor] : executors_) event.mutable_heartbeat()->add_sessions(id);
      if (!join_->Write(event)) return;
    }
  }

  void Run(Executor& executor, const proto::Assign& assign) {
    executor.context.AddMetadata("outboard-session", wire::ToHex(assign.session_id()));
    executor.context.AddMetadata("outboard-token", wire::ToHex(assign.attach_token()));
    executor.context.AddMetadata("authorization", "Bearer " + fleet_secret_);
    auto stream = stub_->Attach(&executor.context);
    proto::ClientFrame frame;
    while (stream->Read(&frame)) {
      proto::ServerFrame answer;
      const auto write = [&] {
        answer.set_epoch(frame.epoch());
        answer.add_items()->mutable_done()->set_through_seq(executor.applied);
        stream->Write(answer);
        answer.Clear();
      };
      for (const proto::ClientItem& item : frame.items()) {
        Apply(executor, item, answer);
        if (answer.ByteSizeLong() >= wire::kPieceBytesMax) write();  // a message has its limit
      }
      write();
    }
    stream->Finish();
  }

  void Apply(Executor& executor, const proto::ClientItem& item, proto::ServerFrame& answer) {
    if (item.has_open()) {
      proto::Opened& opened = *answer.add_items()->mutable_opened();
      opened.set_protocol(item.open().protocol().max());
      opened.set_applied_seq(executor.applied);
      opened.mutable_device()->set_kind("fake");
      opened.set_devices(1);
      for (const proto::Value& value : executor.kept) {
        if (value.seq() > item.open().received_seq())
          *answer.add_items()->mutable_done()->add_values() = value;
      }
      return;
    }
    if (item.has_graph()) {
      ++graphs_;
      if (item.graph().refused_code() != 0) {
        executor.refused[item.graph().id()] = {item.graph().refused_code(), item.graph().refused()};
      }
    }
    if (item.seq() != executor.applied + 1) return;
    if (item.has_put()) {
      const proto::Put& put = item.put();
      Array& array = executor.arrays[put.handle()];
      if (put.offset() == 0) array.bytes.clear();
      array.dtype = put.dtype();
      array.dims.assign(put.dims().begin(), put.dims().end());
      array.bytes += put.data();
      // A blob that a worker would pull. The gateway authorises that; the fake ignores the content.
      // at.
      if (!put.blob_root().empty()) array.bytes.resize(put.total_bytes());
      put_bytes_ += put.blob_root().empty() ? put.data().size() : put.total_bytes();
      if (array.bytes.size() < put.total_bytes()) return;
    }
    executor.applied = item.seq();
    if (item.has_release()) {
      for (uint64_t handle : item.release().handles()) executor.arrays.erase(handle);
    }
    if (item.has_fetch()) Send(executor, item.seq(), 0, item.fetch().handles(0), answer);
    if (!item.has_run()) return;
    ++runs_;
    const proto::Run& run = item.run();
    if (auto it = executor.refused.find(run.graph_id()); it != executor.refused.end()) {
      proto::Failed& failed = *answer.add_items()->mutable_failed();
      failed.set_seq(item.seq());
      failed.set_code(it->second.first);
      failed.set_message(it->second.second);
      return;
    }
    for (uint64_t output : run.outputs()) executor.arrays[output] = executor.arrays[run.inputs(0)];
    for (uint32_t index : run.fetch())
      Send(executor, item.seq(), index, run.outputs(static_cast<int>(index)), answer);
  }

  void Send(Executor& executor, uint64_t seq, uint32_t index, uint64_t handle,
            proto::ServerFrame& answer) {
    const Array& array = executor.arrays[handle];
    proto::Value value;
    value.set_seq(seq);
    value.set_index(index);
    value.set_dtype(array.dtype);
    for (uint64_t dim : array.dims) value.add_dims(dim);
    value.set_total_bytes(array.bytes.size());
    value.set_data(array.bytes);
    executor.kept.push_back(value);
    *answer.add_items()->mutable_done()->add_values() = value;
  }

  std::unique_ptr<proto::Fleet::Stub> stub_;
  const std::string fleet_secret_;
  grpc::ClientContext join_context_;
  std::unique_ptr<grpc::ClientReaderWriter<proto::WorkerEvent, proto::GatewayCommand>> join_;
  std::atomic<bool> stopped_{false};
  std::atomic<int> runs_{0}, graphs_{0};
  std::atomic<uint64_t> put_bytes_{0};
  std::mutex mutex_;
  std::map<std::string, std::string> tokens_;  // by session
  std::map<std::string, std::unique_ptr<Executor>> executors_;
  std::vector<std::unique_ptr<Executor>> replaced_;
  std::thread reader_, beater_;
};

}  // namespace outboard
