#include "client/trace/trace.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/trace/perfetto.h"

namespace outboard::trace {
namespace {

uint32_t ThreadNumber() {
  static std::atomic<uint32_t> count{0};
  thread_local const uint32_t number = ++count;
  return number;
}

absl::Status CannotWrite(const std::string& file) {
  return absl::UnavailableError(absl::StrCat("the trace cannot be written to ", file,
                                             ": set PROFILE to a file in a folder that is there"));
}

// Nothing may be locked or allocated in a signal's handler: it wakes a thread, which writes the
// file and then lets the signal do what it would have done.
int signal_pipe[2];

void OnSignal(int number) {
  const char byte = static_cast<char>(number);
  if (write(signal_pipe[1], &byte, 1) != 1) _exit(128 + number);
}

void AwaitSignals(Trace* trace) {
  char byte = 0;
  while (read(signal_pipe[0], &byte, 1) != 1) {
  }
  trace->WriteIfChanged();
  signal(byte, SIG_DFL);
  kill(getpid(), byte);
}

void CatchSignals(Trace* trace) {
  if (pipe2(signal_pipe, O_CLOEXEC) != 0) return;
  bool caught = false;
  for (const int number : {SIGINT, SIGTERM}) {
    struct sigaction before {};
    if (sigaction(number, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) continue;
    struct sigaction ours {};
    ours.sa_handler = OnSignal;
    ours.sa_flags = SA_RESTART;
    caught |= sigaction(number, &ours, nullptr) == 0;
  }
  if (caught) std::thread(AwaitSignals, trace).detach();
}

}  // namespace

uint64_t NowNs() {
  return static_cast<uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

Trace* Trace::FromEnvironment() {
  const char* const file = std::getenv("PROFILE");
  if (file == nullptr || *file == '\0') return nullptr;
  // A program may change its folder later. It is never freed: what ends after main still adds to
  // it.
  std::error_code error;
  static Trace* trace = nullptr;
  trace = new Trace(std::filesystem::absolute(file, error).string());
  static const pid_t process = getpid();  // a fork's child must not write over its parent's
  std::atexit([] {
    if (getpid() == process) trace->WriteIfChanged();
  });
  CatchSignals(trace);
  return trace;
}

Trace* Trace::OfProcess() {
  static Trace* const trace = FromEnvironment();
  return trace;
}

absl::Status Trace::Check() const {
  const std::string part = absl::StrCat(file_, ".part");
  std::FILE* const out = std::fopen(part.c_str(), "w");
  if (out == nullptr) return CannotWrite(file_);
  std::fclose(out);
  std::remove(part.c_str());
  return absl::OkStatus();
}

uint32_t Trace::AddSession() {
  const std::lock_guard lock(mutex_);
  return ++sessions_;
}

bool Trace::HasRoom() {
  changed_ = true;
  if (collected_.client.size() + collected_.remote.size() < spans_max_) return true;
  ++collected_.dropped;
  return false;
}

void Trace::Sent(uint32_t session, const proto::ClientFrame& frame) {
  uint64_t last = 0;
  for (const proto::ClientItem& item : frame.items()) last = std::max(last, item.seq());
  if (last == 0) return;
  const uint64_t now_ns = NowNs();
  const std::lock_guard lock(mutex_);
  collected_.epochs[{session, frame.epoch()}].Sent(last, now_ns);
}

void Trace::Came(uint32_t session, const proto::ServerFrame& frame) {
  const uint64_t now_ns = NowNs();
  const EpochKey key{session, frame.epoch()};
  const std::lock_guard lock(mutex_);
  for (const proto::ServerItem& item : frame.items()) {
    if (item.has_opened()) collected_.workers[key] = item.opened().worker();
    if (item.done().passages_size() > 0) collected_.epochs[key].Came(item.done(), now_ns);
    collected_.dropped += item.done().spans_dropped();
    for (const proto::Span& span : item.done().spans())
      if (HasRoom()) collected_.remote.push_back({key, span});
  }
}

void Trace::Add(ClientSpan span) {
  span.thread = ThreadNumber();
  const std::lock_guard lock(mutex_);
  if (HasRoom()) collected_.client.push_back(span);
}

Collected Trace::Snapshot() {
  const std::lock_guard lock(mutex_);
  changed_ = false;
  return collected_;
}

absl::Status Trace::Write() {
  const std::lock_guard lock(write_mutex_);
  const std::string part = absl::StrCat(file_, ".part");
  {
    std::ofstream out(part, std::ios::trunc);
    WritePerfetto(Snapshot(), out);
    out.close();
    if (out.fail()) {
      std::remove(part.c_str());
      return CannotWrite(file_);
    }
  }
  if (std::rename(part.c_str(), file_.c_str()) != 0) return CannotWrite(file_);
  return absl::OkStatus();
}

void Trace::WriteIfChanged() {
  {
    const std::lock_guard lock(mutex_);
    if (!changed_) return;
  }
  if (const absl::Status status = Write(); !status.ok())
    std::fprintf(stderr, "outboard: %s\n", std::string(status.message()).c_str());
}

void Scope::Begin(const char* name, uint32_t session) {
  span_.name = name;
  span_.session = session;
  span_.begin_ns = NowNs();
}

void Scope::End() {
  span_.end_ns = NowNs();
  trace_->Add(span_);
}

}  // namespace outboard::trace
