// A call with one request and one answer whose caller is let in before its request is read.
//
// gRPC reads the request of such a call before it tells anybody of it, up to the largest message.
// On the wire, though, it is a stream with one message in each direction: served as a stream, its
// headers come first, and of its request no more than HTTP/2's window is taken until StartRead.
//
// Errors: those of whoever lets in and works
//         INVALID_ARGUMENT    no request came that could be read
//         RESOURCE_EXHAUSTED  who had to answer has let go of `then` or `done`, as something threw
// Threads: gRPC's, and those that let in and work.
#pragma once

#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/base/thrown.h"
#include "gateway/data_path/admitted.h"
#include "gateway/observe/call_record.h"
#include "gateway/streams/owed_answer.h"
#include "gateway/streams/stall_watch.h"

namespace outboard::gateway {

// Deletes itself after the answer.
template <typename Request, typename Reply>
class UnaryCall final : public grpc::ServerBidiReactor<Request, Reply> {
 public:
  using Then = std::function<void(absl::StatusOr<Admitted>)>;
  using Done = std::function<void(absl::Status)>;
  // Looks at the caller, and calls `then` once, now or later.
  using LetIn = std::function<void(CallRecord& record, Then then)>;
  // Works for whoever was let in, and calls `done` once, now or later. All arguments live until
  // then; `reply` is sent where the status is OK.
  using Work =
      std::function<void(const Admitted& caller, const Request* request, Reply* reply, Done done)>;

  // A request that does not come is waited for as long as `requests` says.
  UnaryCall(telemetry::CallMethod method, grpc::CallbackServerContext* context,
            StallWatch* requests, const LetIn& let_in, Work work)
      : record_(method, *context),
        request_comes_(requests->Watch([context] { context->TryCancel(); })),
        work_(std::move(work)) {
    const auto owed = std::make_shared<OwedAnswer<UnaryCall>>(this);
    Caught([&] {
      let_in(record_, [owed](absl::StatusOr<Admitted> admitted) {
        if (UnaryCall* const call = owed->Take()) call->Begin(std::move(admitted));
      });
    });
  }

 private:
  friend class OwedAnswer<UnaryCall>;
  template <typename Step>
  static void Caught(const Step& work) noexcept {
    ErrorIfThrown("a call", [&] {
      work();
      return absl::OkStatus();
    }).IgnoreError();
  }

  // Whoever has called `then` knows nothing of what comes behind it.
  void Begin(absl::StatusOr<Admitted> admitted) noexcept {
    OwedAnswer<UnaryCall>::RunStep(this, [&] {
      if (!admitted.ok()) return admitted.status();
      admitted_ = *std::move(admitted);
      if (admitted_.identity.tenant.value != 0) record_.SetAccount(admitted_.identity.tenant);
      request_comes_->Waits();
      this->StartRead(&request_);
      return absl::OkStatus();
    });
  }

  void OnReadDone(bool ok) override {
    request_comes_->Goes();
    // gRPC does not tell the end from a message that it cannot read.
    if (!ok) return End(absl::InvalidArgumentError("no request came that could be read"));
    const Work work = std::move(work_);  // may end the call, and this object, before it returns
    auto owed = std::move(owed_by_work_);
    owed->Owe(this);
    Caught([&] {
      work(admitted_, &request_, &reply_, [owed = std::move(owed)](const absl::Status& status) {
        if (UnaryCall* const call = owed->Take()) call->End(status);
      });
    });
  }
  void OnDone() override { delete this; }

  void End(const absl::Status& status) noexcept {
    grpc::Status answer = EndCall(record_, status);
    if (answer.ok())
      return this->StartWriteAndFinish(&reply_, grpc::WriteOptions(), std::move(answer));
    this->Finish(std::move(answer));
  }

  CallRecord record_;
  const std::unique_ptr<StallWatch::Watched> request_comes_;
  Work work_;
  // Made while there is memory.
  std::shared_ptr<OwedAnswer<UnaryCall>> owed_by_work_ =
      std::make_shared<OwedAnswer<UnaryCall>>(nullptr);
  Admitted admitted_;
  Request request_;
  Reply reply_;
};

// A gRPC service some of whose methods are served as streams. `Generated` is of the class that
// protoc writes for it, whose own methods do nothing but refuse.
template <typename Generated>
class StreamedService : public Generated {
 protected:
  // `index`: the method's place in the service's definition, from 0.
  template <typename Service, typename Request, typename Reply>
  void Serve(int index, grpc::ServerBidiReactor<Request, Reply>* (Service::*method)(
                            grpc::CallbackServerContext*)) {
    using Handler = grpc::internal::CallbackBidiHandler<Request, Reply>;
    const auto make = [this, method](grpc::CallbackServerContext* context) {
      return (static_cast<Service*>(this)->*method)(context);
    };
    this->MarkMethodStreamed(index, new Handler(make));  // what is read, and when
    this->MarkMethodCallback(index, new Handler(make));  // who is called
  }
};

}  // namespace outboard::gateway
