#include "worker/kernels/kernel_service.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/environment.h"
#include "compiler/target.h"
#include "proto/executor.pb.h"
#include "worker/compile/box_messages.h"
#include "worker/compile/compile_box.h"
#include "worker/compile/compile_boxes.h"
#include "worker/compile/object_cache.h"
#include "worker/compile/rewrite_log.h"
#include "worker/kernels/kernel_messages.h"
#include "worker/process/message_io.h"
#include "worker/process/passed_socket.h"

namespace outboard::worker {
namespace {

// Of this thread, and so of the boxes that it starts.
void TakeLowestPriority() {
  setpriority(PRIO_PROCESS, 0, 19);
  const sched_param none{};
  sched_setscheduler(0, SCHED_IDLE, &none);
}

proto::KernelReply ReplyOf(const absl::Status& status) {
  proto::KernelReply reply;
  reply.set_code(static_cast<uint32_t>(status.code()));
  reply.set_message(std::string(status.message()));
  return reply;
}

// The compilers of one process. Of the service's thread.
class ServedCompilers {
 public:
  ServedCompilers(const KernelServiceOptions& options, int stop_fd)
      : options_(options),
        program_(options.compiler.empty() ? ProgramBeside("outboard-compiler") : options.compiler),
        stop_fd_(stop_fd) {
    if (options.warm) box_ = MakeBox();
  }

  void Keep(const std::string& objects) {
    if (objects == objects_) return;
    objects_ = objects;
    OpenCache();
  }

  absl::StatusOr<proto::CompileReply> Compile(const proto::CompileKernels& compile) {
    OB_RETURN_IF_ERROR(CheckCompile(compile));
    OB_RETURN_IF_ERROR(CheckTarget(compile.request()));
    const std::vector<KernelSource> kernels = FromRequest(compile.request());
    std::vector<absl::StatusOr<CompiledKernel>> results =
        CompilerFor(compile.purpose()).Compile(kernels);
    proto::CompileReply reply;
    for (absl::StatusOr<CompiledKernel>& result : results)
      *reply.add_results() = ToResult(std::move(result));
    return reply;
  }

 private:
  std::unique_ptr<CompileBox> MakeBox() {
    return std::make_unique<CompileBox>(
        CompileBoxOptions{.program = program_, .target = target_, .stop_fd = stop_fd_});
  }

  void OpenCache() {
    cache_.reset();
    if (objects_.empty() || box_ == nullptr) return;
    cache_ = std::make_unique<ObjectCache>(
        box_.get(),
        ObjectCacheOptions{.folder = objects_, .compiler = CompilerIdentity(program_, target_)});
  }

  // The first request decides; no process changes its device.
  absl::Status CheckTarget(const proto::CompileRequest& request) {
    const std::string named = request.target().SerializeAsString();
    if (named == target_bytes_) return absl::OkStatus();
    if (!target_bytes_.empty() || named.empty())
      return absl::InvalidArgumentError("target: another than that of the first request");
    OB_ASSIGN_OR_RETURN(Target target, TargetOfRequest(request));
    Target host = HostTarget();
    host.threads = std::min(target.threads, host.threads);  // a device may be some of its cores
    if (target.kind == TargetKind::kCpu &&
        named != ToRequest({}, host).target().SerializeAsString())
      return absl::InvalidArgumentError("target: not the processor of this machine");
    target_bytes_ = named;
    if (box_ != nullptr && target.kind == TargetKind::kCpu) return absl::OkStatus();
    target_ = std::move(target);
    if (box_ == nullptr) box_ = MakeBox();
    box_->SetTarget(target_);
    OpenCache();
    return absl::OkStatus();
  }

  KernelCompiler& CompilerFor(proto::CompileKernels::Purpose purpose) {
    const CompileBoxesOptions options{.program = program_, .target = target_, .stop_fd = stop_fd_};
    switch (purpose) {
      case proto::CompileKernels::CANDIDATES:
        if (!candidates_.has_value()) candidates_.emplace(options);
        return *candidates_;
      case proto::CompileKernels::IDLE:
        if (!idle_.has_value()) {
          CompileBoxesOptions one = options;
          one.count = 1;
          idle_.emplace(one);
        }
        return *idle_;
      default:
        if (cache_ != nullptr) return *cache_;
        return *box_;
    }
  }

  const KernelServiceOptions& options_;
  const std::string program_;
  const int stop_fd_;
  Target target_ = HostTarget();
  std::string target_bytes_;  // as the process names it; empty: it has not yet
  std::string objects_;
  std::unique_ptr<CompileBox> box_;
  std::unique_ptr<ObjectCache> cache_;  // before box_
  std::optional<CompileBoxes> candidates_, idle_;
};

}  // namespace

class KernelService::Impl {
 public:
  Impl(KernelServiceOptions options, int ours, int theirs)
      : options_(std::move(options)),
        ours_(ours),
        theirs_(theirs),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        thread_([this] { Main(); }) {}

  ~Impl() {
    shutdown(ours_, SHUT_RDWR);
    thread_.join();
    if (theirs_ >= 0) close(theirs_);
    close(ours_);
    close(wake_);
  }

  int TakeSocket() { return std::exchange(theirs_, -1); }

  void Serve(const AccountFiles& files) {
    std::lock_guard lock(mutex_);
    files_ = files;
    const uint64_t one = 1;
    if (write(wake_, &one, sizeof one) < 0) return;  // it is awake
  }

 private:
  void Main() {
    if (options_.background) TakeLowestPriority();
    compilers_.emplace(options_, ours_);
    proto::KernelRequest request;
    while (AwaitRequest() &&
           ReadMessage(ours_, &request, {.bytes_max = kKernelRequestBytesMax}).ok()) {
      OpenFiles();
      if (request.has_cancel()) continue;  // what it meant has ended
      if (!WriteMessage(ours_, Answer(request)).ok()) break;
      request.Clear();
    }
    shutdown(ours_, SHUT_RDWR);  // so that the process does not wait for an answer
    compilers_.reset();
    log_.reset();
  }

  // Files are opened as soon as they are known, so that the first request does not wait for them.
  bool AwaitRequest() {
    for (;;) {
      pollfd waited[] = {{ours_, POLLIN, 0}, {wake_, POLLIN, 0}};
      if (poll(waited, 2, -1) < 0 && errno == EINTR) continue;
      if (waited[0].revents != 0) return true;
      OpenFiles();
    }
  }

  void OpenFiles() {
    AccountFiles files;
    {
      std::lock_guard lock(mutex_);
      uint64_t ignored;
      if (read(wake_, &ignored, sizeof ignored) < 0) return;  // nothing new
      files = files_;
    }
    compilers_->Keep(files.objects);
    absl::StatusOr<std::unique_ptr<TuningStore>> tuning = OpenTuning(files);
    if (!tuning.ok())
      std::fprintf(stderr, "outboard: kernels are not tuned: %s\n",
                   tuning.status().ToString().c_str());
    tuning_ = tuning.ok() ? *std::move(tuning) : nullptr;
  }

  proto::KernelReply Answer(const proto::KernelRequest& request) {
    proto::KernelReply reply;
    absl::Status status;
    switch (request.kind_case()) {
      case proto::KernelRequest::kCompile: {
        absl::StatusOr<proto::CompileReply> compiled = compilers_->Compile(request.compile());
        if (compiled.ok() && compiled->ByteSizeLong() >= kKernelReplyBytesMax)
          compiled = absl::ResourceExhaustedError("the compiled kernels are too large to be sent");
        if (compiled.ok()) *reply.mutable_compiled() = *std::move(compiled);
        status = compiled.status();
        break;
      }
      case proto::KernelRequest::kRewrites: status = Append(request.rewrites().lines()); break;
      default: status = AnswerTuning(request, reply);
    }
    if (!status.ok()) return ReplyOf(status);
    return reply;
  }

  absl::Status AnswerTuning(const proto::KernelRequest& request, proto::KernelReply& reply) {
    if (tuning_ == nullptr) {
      const bool asks = request.has_find() || request.has_next();
      return asks ? absl::OkStatus() : absl::FailedPreconditionError("no measurements are kept");
    }
    switch (request.kind_case()) {
      case proto::KernelRequest::kFind: {
        OB_ASSIGN_OR_RETURN(const std::optional<Tuning> tuning,
                            tuning_->Find(KeyFromWire(request.find())));
        reply.set_found(tuning.has_value());
        if (tuning.has_value()) TuningToWire(*tuning, *reply.mutable_tuning());
        return absl::OkStatus();
      }
      case proto::KernelRequest::kAdd: {
        OB_ASSIGN_OR_RETURN(const search::Trial trial, TrialFromWire(request.add().trial()));
        return tuning_->Add(KeyFromWire(request.add().key()), request.add().name(), trial);
      }
      case proto::KernelRequest::kFinish:
        return tuning_->Finish(KeyFromWire(request.finish().key()), request.finish().width());
      case proto::KernelRequest::kCosts: {
        if (request.costs().demands_size() > static_cast<int>(kBatchDemandsMax))
          return absl::InvalidArgumentError(absl::StrCat(
              "costs of ", request.costs().demands_size(), " kernels; limit ", kBatchDemandsMax));
        std::vector<Demand> demands;
        for (const proto::KernelDemand& demand : request.costs().demands())
          demands.push_back(DemandFromWire(demand));
        return tuning_->AddCosts(demands);
      }
      case proto::KernelRequest::kNext: {
        OB_ASSIGN_OR_RETURN(const std::optional<Demand> demand,
                            tuning_->Costliest(request.next().search_version(),
                                               request.next().hardware(), request.next().width()));
        reply.set_found(demand.has_value());
        if (demand.has_value()) DemandToWire(*demand, *reply.mutable_demand());
        return absl::OkStatus();
      }
      default: return absl::InvalidArgumentError("a request of an unknown kind");
    }
  }

  absl::Status Append(const std::string& lines) {
    if (options_.rewrite_log.empty())
      return absl::FailedPreconditionError("this worker writes no log of rewrites");
    if (log_ == nullptr) log_ = MakeRewriteLogFile(options_.rewrite_log);
    if (!log_->Append(lines)) return absl::ResourceExhaustedError("the log of rewrites is full");
    return absl::OkStatus();
  }

  const KernelServiceOptions options_;
  const int ours_;
  int theirs_;  // -1: taken
  const int wake_;
  std::mutex mutex_;  // of files_
  AccountFiles files_;
  // Of the thread.
  std::optional<ServedCompilers> compilers_;
  std::unique_ptr<TuningStore> tuning_;
  std::unique_ptr<RewriteLogFile> log_;
  std::thread thread_;
};

KernelServiceOptions KernelServiceFromEnvironment() {
  KernelServiceOptions options;
  options.warm = !IsSet("REF");
  options.rewrite_log = LogFolderFromEnvironment();
  return options;
}

KernelService::KernelService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KernelService::~KernelService() = default;
int KernelService::TakeSocket() { return impl_->TakeSocket(); }
void KernelService::Serve(const AccountFiles& files) { impl_->Serve(files); }

absl::StatusOr<std::unique_ptr<KernelService>> KernelService::Start(
    const KernelServiceOptions& options) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return absl::UnavailableError(absl::StrCat("no socket pair: ", strerror(errno)));
  return std::unique_ptr<KernelService>(
      new KernelService(std::make_unique<Impl>(options, pair[0], pair[1])));
}

std::unique_ptr<KernelService> KernelService::StartFor(const ChildProcess& process,
                                                       const KernelServiceOptions& options,
                                                       bool tunes, const AccountFiles& files) {
  absl::StatusOr<std::unique_ptr<KernelService>> service = Start(options);
  if (!service.ok()) return nullptr;
  (*service)->Serve(files);
  const int socket = (*service)->TakeSocket();
  proto::NodeCommand command;
  command.mutable_kernel_socket()->set_tunes(tunes);
  const absl::Status sent = WriteMessageWithDescriptor(process.fd(), command, socket);
  close(socket);
  return sent.ok() ? *std::move(service) : nullptr;
}

}  // namespace outboard::worker
