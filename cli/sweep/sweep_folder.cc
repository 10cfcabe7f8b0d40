#include "cli/sweep/sweep_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/common.h"

namespace outboard::cli {
namespace {

constexpr size_t kFileBytesMax = 256 << 20;  // 10,000 trials with long notes are 10 MB
constexpr int kClaimTries = 20;
constexpr std::chrono::milliseconds kClaimAgain{25};
constexpr mode_t kOwnerOnly = 0600;          // commands may hold secrets

std::string Root() { return DefaultDataFolder() + "/sweeps"; }

absl::Status DiskError(const std::string& path) {
  return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return DiskError(path);
  std::string bytes;
  char piece[1 << 16];
  ssize_t count;
  while ((count = read(fd, piece, sizeof piece)) > 0 && bytes.size() < kFileBytesMax)
    bytes.append(piece, static_cast<size_t>(count));
  const bool failed = count < 0;
  close(fd);
  if (failed) return DiskError(path);
  return bytes;
}

absl::Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return DiskError(path);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SweepFolder> SweepFolder::Create(const SweepPlan& plan) {
  std::error_code error;
  std::filesystem::create_directories(Root(), error);
  if (error) return absl::UnavailableError(absl::StrCat(Root(), ": ", error.message()));
  char now[32];
  const std::time_t time = std::time(nullptr);
  std::tm local{};
  localtime_r(&time, &local);
  std::strftime(now, sizeof now, "%Y-%m-%d-%H%M%S", &local);
  for (int i = 1; i < 1000; ++i) {
    const std::string id = i == 1 ? now : absl::StrCat(now, "-", i);
    SweepFolder folder(id, Root() + "/" + id);
    if (mkdir(folder.path_.c_str(), 0700) != 0) {
      if (errno == EEXIST) continue;
      return DiskError(folder.path_);
    }
    std::vector<SweepTrial> trials;
    for (std::vector<std::string>& values : plan.ValuesOf()) {
      SweepTrial& trial = trials.emplace_back();
      trial.number = static_cast<int>(trials.size());
      trial.values = std::move(values);
    }
    if (absl::Status status = folder.WriteTrials(trials); !status.ok()) return status;
    // The plan last: without it the folder is no sweep.
    if (absl::Status status = folder.WritePlan(plan); !status.ok()) return status;
    return folder;
  }
  return absl::UnavailableError(absl::StrCat(Root(), ": 999 sweeps began in this second"));
}

std::vector<std::string> SweepFolder::List() {
  std::vector<std::string> ids;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(Root(), error))
    if (std::filesystem::exists(entry.path() / "sweep.json", error))
      ids.push_back(entry.path().filename());
  std::ranges::sort(ids, std::greater());
  return ids;
}

absl::StatusOr<SweepFolder> SweepFolder::Open(const std::string& id) {
  const std::vector<std::string> ids = List();
  if (ids.empty()) return absl::NotFoundError(absl::StrCat("there is no sweep in ", Root()));
  if (id.empty()) return SweepFolder(ids.front(), Root() + "/" + ids.front());
  if (std::ranges::count(ids, id) == 0)
    return absl::NotFoundError(
        absl::StrCat("there is no sweep \"", id, "\"; `outboard sweep ls` lists them"));
  return SweepFolder(id, Root() + "/" + id);
}

std::string SweepFolder::LogOf(int trial) const {
  return absl::StrCat(path_, "/trial-", trial, ".log");
}

absl::StatusOr<SweepPlan> SweepFolder::ReadPlan() const {
  const absl::StatusOr<std::string> text = ReadFile(path_ + "/sweep.json");
  if (!text.ok()) return text.status();
  return SweepPlan::FromJson(*text);
}

absl::Status SweepFolder::WritePlan(const SweepPlan& plan) const {
  return Write("sweep.json", plan.ToJson());
}

absl::StatusOr<std::vector<SweepTrial>> SweepFolder::ReadTrials(const SweepPlan& plan) const {
  const absl::StatusOr<std::string> text = ReadFile(path_ + "/trials.json");
  if (!text.ok()) return text.status();
  return TrialsFromJson(plan, *text);
}

absl::Status SweepFolder::WriteTrials(const std::vector<SweepTrial>& trials) const {
  return Write("trials.json", TrialsToJson(trials));
}

std::optional<int64_t> SweepFolder::ReadWarmUp() const {
  const absl::StatusOr<std::string> text = ReadFile(path_ + "/warm-up");
  int64_t cost_micro_usd = 0;
  if (!text.ok() || !absl::SimpleAtoi(*text, &cost_micro_usd)) return std::nullopt;
  return cost_micro_usd;
}

absl::Status SweepFolder::WriteWarmUp(int64_t cost_micro_usd) const {
  return Write("warm-up", absl::StrCat(cost_micro_usd, "\n"));
}

absl::Status SweepFolder::Write(const std::string& name, std::string_view bytes) const {
  const std::string path = path_ + "/" + name, fresh = path + ".new";
  const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kOwnerOnly);
  if (fd < 0) return DiskError(fresh);
  absl::Status status = WriteAll(fd, bytes, fresh);
  if (status.ok() && fdatasync(fd) != 0) status = DiskError(fresh);
  close(fd);
  if (status.ok() && rename(fresh.c_str(), path.c_str()) != 0) status = DiskError(path);
  return status;
}

absl::StatusOr<int> SweepFolder::Claim() const {
  const std::string path = path_ + "/runner";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kOwnerOnly);
  if (fd < 0) return DiskError(path);
  // Who asks whether it runs holds the lock for a moment, too.
  bool is_ours = false;
  for (int i = 0; i < kClaimTries && !is_ours; ++i) {
    is_ours = flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (!is_ours) std::this_thread::sleep_for(kClaimAgain);
  }
  if (!is_ours) {
    close(fd);
    return absl::FailedPreconditionError(
        absl::StrCat("sweep ", id_, " is running already; see `outboard sweep watch ", id_, "`"));
  }
  if (ftruncate(fd, 0) != 0) {  // what ran it before is not what has it now
    close(fd);
    return DiskError(path);
  }
  return fd;
}

absl::Status SweepFolder::NoteRunner(int lock, int pid) const {
  const std::string text = absl::StrCat(pid, "\n");
  if (pwrite(lock, text.data(), text.size(), 0) < 0)
    return DiskError(path_ + "/runner");
  return absl::OkStatus();
}

std::optional<int> SweepFolder::RunnerPid() const {
  const std::string path = path_ + "/runner";
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  // A shared lock is to be had exactly when nobody runs it.
  const bool runs = flock(fd, LOCK_SH | LOCK_NB) != 0;
  char text[32] = {};
  const ssize_t count = pread(fd, text, sizeof text - 1, 0);
  close(fd);
  int pid = 0;
  if (!runs || count <= 0 || !absl::SimpleAtoi(text, &pid)) return std::nullopt;
  return pid;
}

}  // namespace outboard::cli
