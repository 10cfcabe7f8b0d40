#include "worker/compile/rewrite_log.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/environment.h"
#include "compiler/ir/print.h"

namespace outboard::worker {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "rewrites-", kSuffix = ".jsonl";
// The last line is always whole: it fits into what is kept free for it.
constexpr std::string_view kFull = "{\"full\":true}\n";
// Lines that are passed on before their plan has ended.
constexpr size_t kPassedOnBytes = size_t{256} << 10;

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      absl::StrAppend(&out, "\\", std::string(1, c));
    else if (static_cast<unsigned char>(c) < 0x20)
      out += ' ';
    else
      out += c;
  }
  return out + "\"";
}

// Oldest first: names start with the time.
std::vector<fs::path> LogsOf(const std::string& folder) {
  std::vector<fs::path> logs;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    if (name.starts_with(kPrefix) && name.ends_with(kSuffix)) logs.push_back(it->path());
  }
  std::sort(logs.begin(), logs.end());
  return logs;
}

// nullptr where it cannot be made.
std::FILE* NewLog(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  const std::vector<fs::path> logs = LogsOf(folder);
  for (size_t i = 0; i + kLogsMax <= logs.size(); ++i) fs::remove(logs[i], error);
  std::FILE* file = nullptr;
  do {  // sessions of one process may begin at the same time
    const auto now_us = std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::system_clock::now().time_since_epoch());
    const std::string path = absl::StrCat(folder, "/", std::string(kPrefix), now_us.count(), "-",
                                          getpid(), std::string(kSuffix));
    file = std::fopen(path.c_str(), "wex");
  } while (file == nullptr && errno == EEXIST);
  if (file == nullptr)
    std::fprintf(stderr, "VIZ: cannot write a file in %s; rewrites are not recorded\n",
                 folder.c_str());
  return file;
}

class FolderLog final : public RewriteLogFile {
 public:
  FolderLog(const std::string& folder, int64_t bytes_max)
      : folder_(folder), bytes_left_(bytes_max) {}
  ~FolderLog() override {
    if (file_ != nullptr) std::fclose(file_);
  }
  FolderLog(const FolderLog&) = delete;
  FolderLog& operator=(const FolderLog&) = delete;

  bool Append(std::string_view lines) override {
    const auto bytes = static_cast<int64_t>(lines.size());
    if (bytes > bytes_left_) bytes_left_ = 0;
    if (bytes_left_ == 0) return false;
    if (file_ == nullptr && (file_ = NewLog(folder_)) == nullptr) {
      bytes_left_ = 0;
      return false;
    }
    bytes_left_ -= bytes;
    // Flushed so that it can be looked at while the session goes on.
    const bool written = std::fwrite(lines.data(), 1, lines.size(), file_) == lines.size() &&
                         std::fflush(file_) == 0;
    if (!written) bytes_left_ = 0;
    return written;
  }

 private:
  const std::string folder_;
  std::FILE* file_ = nullptr;  // from the first lines on
  int64_t bytes_left_;
};

class LineRecorder final : public RewriteRecorder {
 public:
  LineRecorder(AppendLines append, int64_t bytes_max)
      : append_(std::move(append)), bytes_left_(bytes_max) {}
  ~LineRecorder() override { PassOn(); }
  LineRecorder(const LineRecorder&) = delete;
  LineRecorder& operator=(const LineRecorder&) = delete;

  void BeginPass(std::string_view name, Sources of, const UOp* before) override {
    if (depth_++ == 0) numbers_.clear();  // nodes of a Graph that may be gone
    if (full_) return;
    std::vector<int64_t> values;
    for (const UOp* value : of) values.push_back(NumberOf(value));
    const int64_t graph = NumberOf(before);
    Write(absl::StrCat("{\"begin\":", Quoted(name), ",\"of\":[", absl::StrJoin(values, ","),
                       "],\"graph\":", graph, "}\n"));
  }

  void Applied(std::string_view rule, const UOp* before, const UOp* after) override {
    if (full_) return;
    const int64_t from = NumberOf(before), to = NumberOf(after);
    Write(absl::StrCat("{\"rule\":", Quoted(rule), ",\"from\":", from, ",\"to\":", to, "}\n"));
  }

  void EndPass(const UOp* after) override {
    --depth_;
    if (!full_)
      Write(after == nullptr ? "{\"end\":null}\n"
                             : absl::StrCat("{\"end\":", NumberOf(after), "}\n"));
    if (depth_ == 0) PassOn();
  }

 private:
  // A node is written when it is first met, after its sources. A pass meets each anew many times,
  // so only what has no number yet is walked.
  int64_t NumberOf(const UOp* root) {
    if (const auto known = numbers_.find(root); known != numbers_.end()) return known->second;
    std::vector<const UOp*> left = {root};
    while (!left.empty() && !full_) {
      const UOp* const node = left.back();
      const size_t before = left.size();
      if (!numbers_.contains(node))
        for (const UOp* source : node->src)
          if (!numbers_.contains(source)) left.push_back(source);
      if (left.size() > before) continue;
      left.pop_back();
      if (!numbers_.try_emplace(node, static_cast<int64_t>(numbers_.size())).second) continue;
      Write(absl::StrCat("{\"node\":", numbers_.at(node), ",\"text\":", Quoted(NodeToString(node)),
                         ",\"src\":[",
                         absl::StrJoin(node->src, ",",
                                       [&](std::string* out, const UOp* source) {
                                         absl::StrAppend(out, numbers_.at(source));
                                       }),
                         "]}\n"));
    }
    return numbers_[root];
  }

  void Write(std::string_view line) {
    if (full_) return;
    full_ = bytes_left_ < static_cast<int64_t>(line.size() + kFull.size());
    if (full_) line = kFull;
    bytes_left_ -= static_cast<int64_t>(line.size());
    lines_ += line;
    if (lines_.size() >= kPassedOnBytes) PassOn();
  }

  void PassOn() {
    if (!lines_.empty() && !append_(std::exchange(lines_, {}))) full_ = true;
  }

  const AppendLines append_;
  std::string lines_;  // not passed on yet
  int64_t bytes_left_;
  bool full_ = false;  // nothing more is written
  int depth_ = 0;
  absl::flat_hash_map<const UOp*, int64_t> numbers_;  // of the outermost pass
};

}  // namespace

std::string DefaultLogFolder() {
  const std::string caches = CacheFolder();
  return caches.empty() ? "" : absl::StrCat(caches, "/viz");
}

std::string LogFolderFromEnvironment() {
  const char* const viz = std::getenv("VIZ");
  const std::string_view value = viz == nullptr ? "" : viz;
  if (value.empty() || value == "0") return "";
  return value == "1" ? DefaultLogFolder() : std::string(value);
}

std::unique_ptr<RewriteRecorder> MakeRewriteRecorder(AppendLines append, int64_t bytes_max) {
  return std::make_unique<LineRecorder>(std::move(append), bytes_max);
}

std::unique_ptr<RewriteLogFile> MakeRewriteLogFile(const std::string& folder, int64_t bytes_max) {
  return std::make_unique<FolderLog>(folder, bytes_max);
}

std::unique_ptr<RewriteRecorder> MakeRewriteLog(const std::string& folder, int64_t bytes_max) {
  const std::shared_ptr<RewriteLogFile> file = MakeRewriteLogFile(folder, bytes_max);
  return MakeRewriteRecorder([file](std::string_view lines) { return file->Append(lines); },
                             bytes_max);
}

absl::StatusOr<std::string> NewestLog(const std::string& folder) {
  const std::vector<fs::path> logs = LogsOf(folder);
  if (logs.empty())
    return absl::NotFoundError(
        absl::StrCat("no file of rewrites in ", folder, "; run a worker with VIZ=1 first"));
  return logs.back().string();
}

}  // namespace outboard::worker
