#include "worker/kernels/kernel_service.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/sha256.h"
#include "compiler/search/neighbours.h"
#include "compiler/target.h"
#include "proto/executor.pb.h"
#include "telemetry/counters.h"
#include "worker/compile/compile_messages.h"
#include "worker/compile/compile_pool.h"
#include "worker/compile/compile_process.h"
#include "worker/compile/object_cache.h"
#include "worker/compile/object_folder.h"
#include "worker/compile/rewrite_log.h"
#include "worker/executor/executor_main.h"
#include "worker/kernels/kernel_messages.h"
#include "worker/process/lowest_priority.h"
#include "worker/process/message_io.h"
#include "worker/process/message_limits.h"
#include "worker/process/passed_socket.h"
#include "worker/process/program_file.h"
#include "worker/sandbox/granted_parts.h"

namespace outboard::worker {
namespace {

// Distinct kernels that one process may search for. Fewer trials of one kernel than the store takes
// (kTrialsMax) are enough for a narrow search, which makes up to 130 for each unit of its width.
constexpr size_t kSearchedKernelsMax = 4096;
constexpr int kCandidatesPerWidth = 512;

// This machine's processor as a session on these cores sees it.
Target HostTargetOn(const std::vector<int>& cores) {
  Target target = HostTarget();
  if (!cores.empty()) target.threads = static_cast<int>(cores.size());
  return target;
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
        program_(options.compiler.empty() ? CompilerProgram() : ProgramAt(options.compiler)),
        stop_fd_(stop_fd),
        cores_(options.cores),
        target_(HostTargetOn(cores_)) {
    if (options.warm) StartProcess();
  }

  void Keep(const AccountFiles& files) {
    if (files == files_) return;
    files_ = files;
    OpenCache();
  }

  void MoveTo(const std::vector<int>& cores) {
    if (cores == cores_) return;
    cores_ = cores;
    candidates_.reset();
    idle_.reset();
    if (compile_process_ != nullptr) compile_process_->MoveTo(cores_);
    if (!has_named_target_) SetTarget(HostTargetOn(cores_));
  }

  // What the process's driver has linked. Only a device with a driver has any.
  absl::Status FindLinked(const proto::FindLinked& find, proto::KernelReply& reply) {
    OB_RETURN_IF_ERROR(CheckMayLink());
    OB_RETURN_IF_ERROR(CheckLinked(find));
    size_t bytes = 0, hits = 0;
    for (const std::string& key : find.keys()) {
      proto::LinkedKernel& kernel = *reply.add_linked();
      if (!linked_.has_value() || bytes > kKernelReplyBytesMax / 2) continue;
      std::optional<std::string> code = linked_->Load(KeyOfLinked(key));
      if (!code.has_value() || code->size() > kLinkedBytesMax) continue;
      ++hits;
      bytes += code->size();
      kernel.set_code(*std::move(code));
    }
    telemetry::CountAs(telemetry::Metric::kLinkedCode, telemetry::Lookup::kHit, hits);
    telemetry::CountAs(telemetry::Metric::kLinkedCode, telemetry::Lookup::kMiss,
                       static_cast<uint64_t>(find.keys_size()) - hits);
    return absl::OkStatus();
  }
  absl::Status AddLinked(const proto::AddLinked& add) {
    OB_RETURN_IF_ERROR(CheckMayLink());
    OB_RETURN_IF_ERROR(CheckLinked(add));
    if (!linked_.has_value()) return absl::OkStatus();
    for (const proto::LinkedKernel& kernel : add.kernels())
      linked_->Store(KeyOfLinked(kernel.key()), kernel.code());
    linked_->TrimIfGrown();
    return absl::OkStatus();
  }

  // The process says which device its driver has given it. Only once: all that is compiled and
  // measured from then on is for that device.
  absl::Status NameTarget(const proto::CompileTarget& named) {
    OB_RETURN_IF_ERROR(CheckTarget(named));
    OB_ASSIGN_OR_RETURN(Target target, TargetFromWire(named));
    if (!options_.names_target || target.kind == TargetKind::kCpu)
      return absl::InvalidArgumentError("target: that of a processor is not the process's to name");
    if (has_named_target_) return absl::InvalidArgumentError("target: named before");
    has_named_target_ = true;
    SetTarget(std::move(target));
    return absl::OkStatus();
  }
  // Errors: FAILED_PRECONDITION  the process has not named the target of its device
  absl::Status CheckHasTarget() const {
    if (has_named_target_ || !options_.names_target) return absl::OkStatus();
    return absl::FailedPreconditionError("target: the process has named none");
  }

  // On which the process measures.
  std::string hardware() const { return target_.Fingerprint(); }

  absl::StatusOr<proto::CompileReply> Compile(const proto::CompileKernels& compile) {
    OB_RETURN_IF_ERROR(CheckCompile(compile));
    OB_RETURN_IF_ERROR(CheckHasTarget());
    OB_RETURN_IF_ERROR(CheckPurpose(compile));
    const std::vector<KernelSource> kernels = FromRequest(compile.request());
    std::vector<absl::StatusOr<CompiledKernel>> results =
        CompilerFor(compile.purpose()).Compile(kernels);
    proto::CompileReply reply;
    for (absl::StatusOr<CompiledKernel>& result : results)
      *reply.add_results() = ToResult(std::move(result));
    return reply;
  }

 private:
  absl::Status CheckMayLink() const {
    if (options_.names_target) return absl::OkStatus();
    return absl::FailedPreconditionError("this worker's device links nothing");
  }

  // The process chooses its key, and must not reach a compiled kernel by it.
  static std::string KeyOfLinked(const std::string& key) {
    const Sha256Digest digest = Sha256(absl::StrCat("linked code\n", key));
    return {digest.begin(), digest.end()};
  }

  void StartProcess() {
    compile_process_ = std::make_unique<CompileProcess>(CompileProcessOptions{
        .program = program_.path, .target = target_, .stop_fd = stop_fd_, .cores = cores_});
  }

  void OpenCache() {
    cache_.reset();
    linked_.reset();
    if (files_.objects.empty()) return;
    std::function<void(int64_t)> on_stored;
    if (files_.disk != nullptr)
      on_stored = [disk = files_.disk](int64_t bytes) { disk->StoredObject(bytes); };
    if (options_.names_target)
      linked_.emplace(ObjectFolderOptions{files_.objects, files_.objects_bytes_max, on_stored});
    if (compile_process_ == nullptr) return;
    ObjectCacheOptions options{.folder = files_.objects,
                               .compiler = CompilerIdentity(program_.file, target_),
                               .bytes_max = files_.objects_bytes_max,
                               .on_stored = on_stored,
                               .is_stopped = [fd = stop_fd_] {
                                 pollfd waited{fd, POLLIN, 0};
                                 return poll(&waited, 1, 0) > 0;
                               }};
    cache_ = std::make_unique<ObjectCache>(compile_process_.get(), std::move(options));
  }

  void SetTarget(Target target) {
    target_ = std::move(target);
    candidates_.reset();
    idle_.reset();
    if (compile_process_ == nullptr) return;
    compile_process_->SetTarget(target_);
    OpenCache();
  }

  absl::Status CheckPurpose(const proto::CompileKernels& compile) {
    const int kernels = compile.request().kernels_size();
    switch (compile.purpose()) {
      case proto::CompileKernels::CANDIDATES:
        if (options_.rights.width_max <= 0)
          return absl::FailedPreconditionError("nobody has asked for a search (BEAM)");
        OB_RETURN_IF_ERROR(CheckCount(kernels, kBatchCandidatesMax, "candidates"));
        return CountCandidates(compile.request());
      case proto::CompileKernels::IDLE:
        if (!options_.rights.uses_idle_time)
          return absl::FailedPreconditionError("nothing is compiled in idle time here");
        return CheckCount(kernels, 1, "kernels for idle time");
      default: return absl::OkStatus();
    }
  }

  absl::Status CountCandidates(const proto::CompileRequest& request) {
    for (const proto::KernelSource& candidate : request.kernels()) {
      if (!candidate.has_opts())
        return absl::InvalidArgumentError("a candidate of a search without Opts");
      const Sha256Digest kernel = Sha256(candidate.encoding());
      if (searched_.size() >= kSearchedKernelsMax && !searched_.contains(kernel))
        return absl::UnavailableError(
            absl::StrCat("a search for more than ", kSearchedKernelsMax, " kernels"));
      const int most = std::min(
          kTrialsMax, kCandidatesPerWidth * std::min(options_.rights.width_max, kTrialsMax));
      if (++searched_[kernel] > most)
        return absl::ResourceExhaustedError(
            absl::StrCat("more than ", most, " candidates of one kernel"));
    }
    return absl::OkStatus();
  }

  KernelCompiler& CompilerFor(proto::CompileKernels::Purpose purpose) {
    const CompilePoolOptions options{
        .program = program_.path, .target = target_, .stop_fd = stop_fd_, .cores = cores_};
    switch (purpose) {
      case proto::CompileKernels::CANDIDATES:
        if (!candidates_.has_value()) candidates_.emplace(options);
        return *candidates_;
      case proto::CompileKernels::IDLE:
        if (!idle_.has_value()) {
          CompilePoolOptions one = options;
          one.count = 1;
          idle_.emplace(one);
        }
        return *idle_;
      default:
        if (compile_process_ == nullptr) {
          StartProcess();
          OpenCache();
        }
        if (cache_ != nullptr) return *cache_;
        return *compile_process_;
    }
  }

  const KernelServiceOptions& options_;
  const ProgramFile program_;
  const int stop_fd_;
  std::vector<int> cores_;
  Target target_;
  bool has_named_target_ = false;
  AccountFiles files_;
  std::unique_ptr<CompileProcess> compile_process_;
  std::unique_ptr<ObjectCache> cache_;  // before compile_process_
  std::optional<ObjectFolder> linked_;
  std::optional<CompilePool> candidates_, idle_;
  std::map<Sha256Digest, int> searched_;  // candidates of each kernel
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
    Wake();
  }
  void MoveTo(const std::vector<int>& cores) {
    std::lock_guard lock(mutex_);
    cores_ = cores;
    Wake();
  }

 private:
  void Wake() const { eventfd_write(wake_, 1); }

  void Main() {
    if (options_.background) TakeLowestPriority();
    compilers_.emplace(options_, ours_);
    proto::KernelRequest request;
    while (AwaitRequest() &&
           ReadMessage(ours_, &request,
                       {.bytes_max = kKernelRequestBytesMax, .fields_max = kKernelRequestFieldsMax})
               .ok()) {
      Obey();
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
      Obey();
    }
  }

  // What the owner has said since.
  void Obey() {
    AccountFiles files;
    std::vector<int> cores;
    {
      std::lock_guard lock(mutex_);
      uint64_t ignored;
      if (read(wake_, &ignored, sizeof ignored) < 0) return;  // nothing new
      files = files_;
      cores = cores_;
    }
    compilers_->MoveTo(cores);
    compilers_->Keep(files);
    if (files == open_files_) return;
    open_files_ = files;
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
      case proto::KernelRequest::kTarget:
        status = compilers_->NameTarget(request.target());
        break;
      case proto::KernelRequest::kFindLinked:
        status = compilers_->FindLinked(request.find_linked(), reply);
        break;
      case proto::KernelRequest::kAddLinked:
        status = compilers_->AddLinked(request.add_linked());
        break;
      case proto::KernelRequest::kRewrites: status = Append(request.rewrites().lines()); break;
      default: status = AnswerTuning(request, reply);
    }
    if (!status.ok()) return ReplyOf(status);
    return reply;
  }

  TuningKey KeyOf(const std::string& kernel, const std::string& canonical = "") const {
    return {kernel, search::kSpaceVersion, compilers_->hardware(), canonical};
  }

  absl::Status AnswerTuning(const proto::KernelRequest& request, proto::KernelReply& reply) {
    OB_RETURN_IF_ERROR(compilers_->CheckHasTarget());
    if (request.has_find()) return Find(request.find(), reply);
    OB_RETURN_IF_ERROR(CheckRights(request));
    if (tuning_ == nullptr)
      return request.has_next() ? absl::OkStatus()
                                : absl::FailedPreconditionError("no measurements are kept");
    switch (request.kind_case()) {
      case proto::KernelRequest::kAdd: {
        const proto::AddTrial& add = request.add();
        OB_ASSIGN_OR_RETURN(const search::Trial trial, TrialFromWire(add.trial()));
        return tuning_->Add(KeyOf(add.kernel(), add.canonical()), add.name(), trial);
      }
      case proto::KernelRequest::kFinish:
        return tuning_->Finish(KeyOf(request.finish().kernel(), request.finish().canonical()),
                               request.finish().width());
      case proto::KernelRequest::kCosts: {
        OB_RETURN_IF_ERROR(CheckCount(request.costs().demands_size(), kBatchDemandsMax, "costs"));
        std::vector<Demand> demands;
        for (const proto::KernelDemand& demand : request.costs().demands())
          demands.push_back(DemandFromWire(demand, compilers_->hardware()));
        return tuning_->AddCosts(demands);
      }
      case proto::KernelRequest::kNext: {
        OB_ASSIGN_OR_RETURN(const std::optional<Demand> demand,
                            tuning_->Costliest(search::kSpaceVersion, compilers_->hardware(),
                                               request.next().width()));
        reply.set_found(demand.has_value());
        if (demand.has_value()) DemandToWire(*demand, *reply.mutable_demand());
        return absl::OkStatus();
      }
      default: return absl::InvalidArgumentError("a request of an unknown kind");
    }
  }

  absl::Status CheckRights(const proto::KernelRequest& request) const {
    const SearchRights& rights = options_.rights;
    const bool searches = request.has_add() || request.has_finish();
    if ((searches && rights.width_max <= 0) || (request.has_costs() && !rights.uses_idle_time) ||
        (request.has_next() && !rights.takes_demands))
      return absl::FailedPreconditionError("nobody has asked this process for a search");
    if (request.has_finish() &&
        (request.finish().width() < 1 || request.finish().width() > rights.width_max))
      return absl::InvalidArgumentError(absl::StrCat("a search of width ", request.finish().width(),
                                                     "; limit ", rights.width_max));
    return absl::OkStatus();
  }

  // What does not fit into the reply counts as not known.
  absl::Status Find(const proto::FindTunings& find, proto::KernelReply& reply) {
    OB_RETURN_IF_ERROR(CheckCount(find.kernels_size(), kBatchFindsMax, "kernels to find"));
    size_t bytes = 0;
    for (const std::string& kernel : find.kernels()) {
      proto::TunedKernel& tuning = *reply.add_tunings();
      if (tuning_ == nullptr) continue;
      OB_ASSIGN_OR_RETURN(const std::optional<Tuning> known, tuning_->Find(KeyOf(kernel)));
      if (!known.has_value()) continue;
      TuningToWire(*known, tuning);
      bytes += tuning.ByteSizeLong();
      if (bytes > kKernelReplyBytesMax / 2) tuning.Clear();
    }
    return absl::OkStatus();
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
  std::mutex mutex_;  // of the next two
  AccountFiles files_;
  std::vector<int> cores_ = options_.cores;
  // Of the thread.
  std::optional<ServedCompilers> compilers_;
  AccountFiles open_files_;
  std::unique_ptr<TuningStore> tuning_;
  std::unique_ptr<RewriteLogFile> log_;
  std::thread thread_;
};

KernelServiceOptions KernelServiceFromEnvironment() {
  const ExecutorMainOptions executor = ExecutorOptionsFromEnvironment();
  KernelServiceOptions options;
  options.warm = !executor.reference;
  options.rewrite_log = LogFolderFromEnvironment();
  options.rights = {.width_max = executor.no_opt ? 0 : executor.beam,
                    .uses_idle_time = executor.idle_search && !executor.no_opt};
  options.names_target = NeedsDriver();
  return options;
}

KernelService::KernelService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KernelService::~KernelService() = default;
int KernelService::TakeSocket() { return impl_->TakeSocket(); }
void KernelService::Serve(const AccountFiles& files) { impl_->Serve(files); }
void KernelService::MoveTo(const std::vector<int>& cores) { impl_->MoveTo(cores); }

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
  proto::ToExecutor command;
  command.mutable_kernel_socket()->set_tunes(tunes);
  const absl::Status sent = WriteMessageWithDescriptor(process.fd(), command, socket);
  close(socket);
  return sent.ok() ? *std::move(service) : nullptr;
}

}  // namespace outboard::worker
