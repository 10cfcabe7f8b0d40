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
#include "worker/compile/compile_messages.h"
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
    OB_RETURN_IF_ERROR(NameTarget());
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
    return ReadReply();
  }

 private:
  // Tells the supervisor, once, what is compiled for. A processor it knows itself.
  absl::Status NameTarget() {
    if (has_named_target_ || target_.kind == TargetKind::kCpu) return absl::OkStatus();
    proto::KernelRequest request;
    *request.mutable_target() = TargetToWire(target_);
    OB_RETURN_IF_ERROR(WriteMessage(socket_, request, {.bytes_max = kKernelRequestBytesMax}));
    OB_RETURN_IF_ERROR(ReadReply().status());
    has_named_target_ = true;
    return absl::OkStatus();
  }

  absl::StatusOr<proto::KernelReply> ReadReply() {
    proto::KernelReply reply;
    OB_RETURN_IF_ERROR(ReadMessage(socket_, &reply, {.bytes_max = kKernelReplyBytesMax}));
    if (reply.code() != 0) return absl::Status(wire::CodeFromWire(reply.code()), reply.message());
    return reply;
  }

  const int socket_, preempt_fd_;
  const Target target_;
  bool has_named_target_ = false;
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
    *request.mutable_compile()->mutable_request() = ToRequest(kernels);
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
    OB_ASSIGN_OR_RETURN(std::vector<std::optional<Tuning>> found, FindAll({&key, 1}));
    return std::move(found[0]);
  }

  absl::StatusOr<std::vector<std::optional<Tuning>>> FindAll(
      std::span<const TuningKey> keys) override {
    std::vector<std::optional<Tuning>> all;
    for (; !keys.empty(); keys = keys.subspan(std::min(keys.size(), kBatchFindsMax))) {
      const std::span<const TuningKey> batch = keys.first(std::min(keys.size(), kBatchFindsMax));
      proto::KernelRequest request;
      request.mutable_find();
      for (const TuningKey& key : batch) request.mutable_find()->add_kernels(key.kernel);
      OB_ASSIGN_OR_RETURN(const proto::KernelReply reply, connection_->Ask(request));
      if (reply.tunings_size() != static_cast<int>(batch.size()))
        return absl::InternalError("the supervisor answered another question");
      for (const proto::TunedKernel& tuning : reply.tunings()) {
        all.emplace_back();
        if (tuning.trials_size() > 0) {
          OB_ASSIGN_OR_RETURN(all.back(), TuningFromWire(tuning));
        }
      }
    }
    return all;
  }

  absl::Status Add(const TuningKey& key, const std::string& name,
                   const search::Trial& trial) override {
    proto::KernelRequest request;
    proto::AddTrial& add = *request.mutable_add();
    add.set_kernel(key.kernel);
    add.set_name(name.substr(0, kKernelTextBytesMax));
    if (key.canonical.size() <= kDemandBytesMax) add.set_canonical(key.canonical);
    TrialToWire(trial, *add.mutable_trial());
    return connection_->Ask(request).status();
  }

  absl::Status Finish(const TuningKey& key, int width) override {
    proto::KernelRequest request;
    request.mutable_finish()->set_kernel(key.kernel);
    request.mutable_finish()->set_width(width);
    if (key.canonical.size() <= kDemandBytesMax)
      request.mutable_finish()->set_canonical(key.canonical);
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

  // The supervisor knows which search and which hardware: this process's.
  absl::StatusOr<std::optional<Demand>> Costliest(int /*search_version*/,
                                                  const std::string& hardware, int width) override {
    proto::KernelRequest request;
    request.mutable_next()->set_width(width);
    OB_ASSIGN_OR_RETURN(const proto::KernelReply reply, connection_->Ask(request));
    if (!reply.found()) return std::optional<Demand>();
    return std::optional<Demand>(DemandFromWire(reply.demand(), hardware));
  }

 private:
  KernelConnection* const connection_;
};

class RemoteLinkedCode final : public runtime::LinkedCodeStore {
 public:
  explicit RemoteLinkedCode(KernelConnection* connection) : connection_(connection) {}

  std::vector<std::string> Find(std::span<const std::string> keys) override {
    std::vector<std::string> codes;
    while (codes.size() < keys.size()) {
      const std::span<const std::string> batch =
          keys.subspan(codes.size(), std::min(keys.size() - codes.size(), kBatchLinkedMax));
      proto::KernelRequest request;
      request.mutable_find_linked();
      for (const std::string& key : batch) request.mutable_find_linked()->add_keys(key);
      absl::StatusOr<proto::KernelReply> reply = connection_->Ask(request);
      const bool fits = reply.ok() && reply->linked_size() == static_cast<int>(batch.size());
      for (int i = 0; i < static_cast<int>(batch.size()); ++i)
        codes.push_back(fits ? std::move(*reply->mutable_linked(i)->mutable_code()) : "");
    }
    return codes;
  }

  void Add(std::span<const runtime::LinkedCode> linked) override {
    proto::KernelRequest request;
    size_t bytes = 0;
    const auto send = [&] {
      if (request.has_add_linked()) connection_->Ask(request).IgnoreError();
      request.Clear();
      bytes = 0;
    };
    for (const runtime::LinkedCode& one : linked) {
      if (one.code.size() > kLinkedBytesMax) continue;
      if (bytes + one.code.size() > kLinkedBytesMax ||
          request.add_linked().kernels_size() >= static_cast<int>(kBatchLinkedMax))
        send();
      proto::LinkedKernel& kernel = *request.mutable_add_linked()->add_kernels();
      kernel.set_key(one.key);
      kernel.set_code(one.code);
      bytes += one.code.size();
    }
    send();
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
  RemoteLinkedCode linked{&connection};
};

KernelClient::KernelClient(int socket, Target target, int preempt_fd)
    : impl_(std::make_unique<Impl>(socket, std::move(target), preempt_fd)) {}
KernelClient::~KernelClient() = default;
KernelCompiler* KernelClient::compiler() { return &impl_->step; }
KernelCompiler* KernelClient::candidates() { return &impl_->candidates; }
KernelCompiler* KernelClient::idle_compiler() { return &impl_->idle; }
TuningStore* KernelClient::store() { return &impl_->store; }
runtime::LinkedCodeStore* KernelClient::linked() { return &impl_->linked; }

bool KernelClient::AppendRewrites(std::string_view lines) {
  proto::KernelRequest request;
  request.mutable_rewrites()->set_lines(std::string(lines));
  return impl_->connection.Ask(request).ok();
}

}  // namespace outboard::worker
