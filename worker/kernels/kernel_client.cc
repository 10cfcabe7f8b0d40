#include "worker/kernels/kernel_client.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "proto/kernels.pb.h"
#include "wire/status_code.h"
#include "worker/compile/box_messages.h"
#include "worker/kernels/kernel_messages.h"
#include "worker/process/message_io.h"

namespace outboard::worker {
namespace {

using Purpose = proto::CompileKernels::Purpose;
using Results = std::vector<absl::StatusOr<CompiledKernel>>;

// One socket, and what is asked over it.
class KernelConnection {
 public:
  KernelConnection(int socket, Target target, int preempt_fd)
      : socket_(socket), preempt_fd_(preempt_fd), target_(std::move(target)) {}
  ~KernelConnection() { close(socket_); }
  KernelConnection(const KernelConnection&) = delete;
  KernelConnection& operator=(const KernelConnection&) = delete;

  const Target& target() const { return target_; }

  // Sends the request and awaits its reply. `preempt`: cancels what is in flight when preempt_fd
  // becomes readable; the reply comes all the same.
  absl::StatusOr<proto::KernelReply> Ask(const proto::KernelRequest& request,
                                         bool preempt = false) {
    OB_RETURN_IF_ERROR(WriteMessage(socket_, request, {.bytes_max = kKernelRequestBytesMax}));
    if (preempt && preempt_fd_ >= 0) {
      pollfd waited[] = {{socket_, POLLIN, 0}, {preempt_fd_, POLLIN, 0}};
      while (poll(waited, 2, -1) < 0) {  // EINTR
      }
      if (waited[0].revents == 0) {
        proto::KernelRequest cancel;
        cancel.mutable_cancel();
        OB_RETURN_IF_ERROR(WriteMessage(socket_, cancel));
      }
    }
    proto::KernelReply reply;
    OB_RETURN_IF_ERROR(ReadMessage(socket_, &reply, {.bytes_max = kKernelReplyBytesMax}));
    if (reply.code() != 0) return absl::Status(wire::CodeFromWire(reply.code()), reply.message());
    return reply;
  }

 private:
  const int socket_, preempt_fd_;
  const Target target_;
};

class RemoteCompiler final : public KernelCompiler {
 public:
  RemoteCompiler(KernelConnection* connection, Purpose purpose)
      : connection_(connection), purpose_(purpose) {}

  const Target& target() const override { return connection_->target(); }

  Results Compile(std::span<const KernelSource> kernels) override {
    Results results;
    while (!kernels.empty()) {
      size_t count = 0;
      for (size_t bytes = 0; count < std::min(kernels.size(), kBatchKernelsMax); ++count) {
        bytes += kernels[count].encoding.size();
        if (count > 0 && bytes > kBatchBytesMax) break;
      }
      CompileBatch(kernels.first(count), &results);
      kernels = kernels.subspan(count);
    }
    return results;
  }

 private:
  void CompileBatch(std::span<const KernelSource> kernels, Results* results) {
    proto::KernelRequest request;
    request.mutable_compile()->set_purpose(purpose_);
    *request.mutable_compile()->mutable_request() = ToRequest(kernels, target());
    absl::StatusOr<proto::KernelReply> reply =
        connection_->Ask(request, purpose_ == proto::CompileKernels::IDLE);
    if (reply.ok() && reply->compiled().results_size() != static_cast<int>(kernels.size()))
      reply = absl::InternalError("the supervisor answered another question");
    for (size_t i = 0; i < kernels.size(); ++i)
      results->push_back(reply.ok()
                             ? FromResult(std::move(*reply->mutable_compiled()->mutable_results(
                                   static_cast<int>(i))))
                             : absl::StatusOr<CompiledKernel>(reply.status()));
  }

  KernelConnection* const connection_;
  const Purpose purpose_;
};

class RemoteTuning final : public TuningStore {
 public:
  explicit RemoteTuning(KernelConnection* connection) : connection_(connection) {}

  absl::StatusOr<std::optional<Tuning>> Find(const TuningKey& key) override {
    proto::KernelRequest request;
    KeyToWire(key, *request.mutable_find());
    OB_ASSIGN_OR_RETURN(const proto::KernelReply reply, connection_->Ask(request));
    if (!reply.found()) return std::optional<Tuning>();
    OB_ASSIGN_OR_RETURN(Tuning tuning, TuningFromWire(reply.tuning()));
    return std::optional<Tuning>(std::move(tuning));
  }

  absl::Status Add(const TuningKey& key, const std::string& name,
                   const search::Trial& trial) override {
    proto::KernelRequest request;
    KeyToWire(key, *request.mutable_add()->mutable_key());
    request.mutable_add()->set_name(name.substr(0, kKernelTextBytesMax));
    TrialToWire(trial, *request.mutable_add()->mutable_trial());
    return connection_->Ask(request).status();
  }

  absl::Status Finish(const TuningKey& key, int width) override {
    proto::KernelRequest request;
    KeyToWire(key, *request.mutable_finish()->mutable_key());
    request.mutable_finish()->set_width(width);
    return connection_->Ask(request).status();
  }

  absl::Status AddCosts(std::span<const Demand> demands) override {
    proto::KernelRequest request;
    for (const Demand& demand : demands) {
      if (demand.encoding.size() > kDemandBytesMax) continue;
      DemandToWire(demand, *request.mutable_costs()->add_demands());
      if (request.costs().demands_size() < static_cast<int>(kBatchDemandsMax)) continue;
      OB_RETURN_IF_ERROR(connection_->Ask(request).status());
      request.Clear();
    }
    if (!request.has_costs()) return absl::OkStatus();
    return connection_->Ask(request).status();
  }

  absl::StatusOr<std::optional<Demand>> Costliest(int search_version, const std::string& hardware,
                                                  int width) override {
    proto::KernelRequest request;
    request.mutable_next()->set_search_version(search_version);
    request.mutable_next()->set_hardware(hardware);
    request.mutable_next()->set_width(width);
    OB_ASSIGN_OR_RETURN(const proto::KernelReply reply, connection_->Ask(request));
    if (!reply.found()) return std::optional<Demand>();
    return std::optional<Demand>(DemandFromWire(reply.demand()));
  }

 private:
  KernelConnection* const connection_;
};

}  // namespace

class KernelClient::Impl {
 public:
  Impl(int socket, Target target, int preempt_fd)
      : connection(socket, std::move(target), preempt_fd) {}

  KernelConnection connection;
  RemoteCompiler step{&connection, proto::CompileKernels::STEP};
  RemoteCompiler candidates{&connection, proto::CompileKernels::CANDIDATES};
  RemoteCompiler idle{&connection, proto::CompileKernels::IDLE};
  RemoteTuning store{&connection};
};

KernelClient::KernelClient(int socket, Target target, int preempt_fd)
    : impl_(std::make_unique<Impl>(socket, std::move(target), preempt_fd)) {}
KernelClient::~KernelClient() = default;
KernelCompiler* KernelClient::compiler() { return &impl_->step; }
KernelCompiler* KernelClient::candidates() { return &impl_->candidates; }
KernelCompiler* KernelClient::idle_compiler() { return &impl_->idle; }
TuningStore* KernelClient::store() { return &impl_->store; }

bool KernelClient::AppendRewrites(std::string_view lines) {
  proto::KernelRequest request;
  request.mutable_rewrites()->set_lines(std::string(lines));
  return impl_->connection.Ask(request).ok();
}

}  // namespace outboard::worker
