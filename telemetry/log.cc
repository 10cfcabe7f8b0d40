#include "telemetry/log.h"

#include <spdlog/async.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "telemetry/counters.h"
#include "telemetry/log_line.h"

namespace outboard::telemetry {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kQueuedLinesMax = 8192;
constexpr size_t kSecretBytesMin = 8;  // shorter ones would hide innocent words
// How often an event that has become rare says how many of it were not written.
constexpr std::chrono::seconds kReportEvery{60};

// What one event's name may still write.
struct Allowance {
  double tokens = 0;
  Clock::time_point filled;
  uint64_t suppressed = 0;  // since the last line
};

struct Log {
  std::mutex mutex;
  LogOptions options;
  std::map<std::string_view, Allowance, std::less<>> allowances;  // names are literals
  std::vector<std::string> secrets;
  Clock::time_point reported = Clock::now();
  std::shared_ptr<spdlog::details::thread_pool> pool;
  std::shared_ptr<spdlog::logger> queue;  // null: lines are written at once
  uint64_t dropped_before = 0;            // of earlier queues
};
// Never freed: threads may log until the process ends.
Log& TheLog() {
  static Log* const log = new Log;
  return *log;
}
std::atomic<LogLevel> least_level{LogLevel::kInfo};

// Under the log's mutex.
bool MayWrite(Log& log, Allowance& allowance, Clock::time_point now) {
  const LogOptions& options = log.options;
  if (options.events_per_second <= 0) return true;
  if (allowance.filled == Clock::time_point()) {
    allowance.tokens = options.burst;
  } else {
    const std::chrono::duration<double> passed = now - allowance.filled;
    allowance.tokens =
        std::min(options.burst, allowance.tokens + passed.count() * options.events_per_second);
  }
  allowance.filled = now;
  if (allowance.tokens < 1) return false;
  allowance.tokens -= 1;
  return true;
}

void Put(Log& log, LogLevel level, const std::string& line) {
  CountAt(Metric::kLogEvents, static_cast<size_t>(level));
  if (log.options.sink) return log.options.sink(line);
  if (log.queue != nullptr) return log.queue->log(spdlog::level::info, line);
  const std::string whole = line + "\n";
  [[maybe_unused]] const ssize_t put = write(STDERR_FILENO, whole.data(), whole.size());
}

int64_t UnixMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void WriteLine(Log& log, LogLevel level, std::string_view event, std::span<const LogField> fields,
               uint64_t suppressed) {
  Put(log, level,
      FormatLine(log.options.format, UnixMs(), level, event, fields, suppressed, log.secrets));
}

// Of names that have nothing to say any more, and whose next line may be days away.
void ReportSuppressed(Log& log) {
  for (auto& [event, allowance] : log.allowances) {
    const uint64_t suppressed = std::exchange(allowance.suppressed, 0);
    if (suppressed == 0) continue;
    const LogField field("of", event);
    WriteLine(log, LogLevel::kWarning, "log_suppressed", {&field, 1}, suppressed);
  }
}

}  // namespace

void LogAt(LogLevel level, LogName event, LogFields fields) {
  if (level < least_level.load(std::memory_order_relaxed) || level >= LogLevel::kOff) return;
  Log& log = TheLog();
  const Clock::time_point now = Clock::now();
  std::lock_guard lock(log.mutex);
  if (now - log.reported > kReportEvery) {
    log.reported = now;
    ReportSuppressed(log);
  }
  Allowance& allowance = log.allowances[event.text()];
  if (!MayWrite(log, allowance, now)) {
    ++allowance.suppressed;
    Count(Metric::kLogSuppressed);
    return;
  }
  WriteLine(log, level, event.text(), {fields.begin(), fields.size()},
            std::exchange(allowance.suppressed, 0));
}

void LogDebug(LogName event, LogFields fields) { LogAt(LogLevel::kDebug, event, fields); }
void LogInfo(LogName event, LogFields fields) { LogAt(LogLevel::kInfo, event, fields); }
void LogWarning(LogName event, LogFields fields) { LogAt(LogLevel::kWarning, event, fields); }
void LogError(LogName event, LogFields fields) { LogAt(LogLevel::kError, event, fields); }

void StartLogging(LogOptions options) {
  StopLogging();
  Log& log = TheLog();
  std::lock_guard lock(log.mutex);
  least_level = options.level;
  log.options = std::move(options);
  log.allowances.clear();
  if (log.options.sink) return;
  log.pool = std::make_shared<spdlog::details::thread_pool>(kQueuedLinesMax, /*threads=*/1);
  log.queue = std::make_shared<spdlog::async_logger>(
      "outboard", std::make_shared<spdlog::sinks::stderr_sink_mt>(), log.pool,
      spdlog::async_overflow_policy::overrun_oldest);
  log.queue->set_pattern("%v");
}

void StopLogging() {
  Log& log = TheLog();
  std::shared_ptr<spdlog::details::thread_pool> pool;
  {
    std::lock_guard lock(log.mutex);
    ReportSuppressed(log);
    log.queue.reset();
    pool = std::exchange(log.pool, nullptr);
    if (pool != nullptr) log.dropped_before += pool->overrun_counter();
    log.options = LogOptions();
    least_level = log.options.level;
  }
  pool.reset();  // writes what is queued
}

void HideInLogs(std::string_view secret) {
  if (secret.size() < kSecretBytesMin) return;
  Log& log = TheLog();
  std::lock_guard lock(log.mutex);
  if (std::find(log.secrets.begin(), log.secrets.end(), secret) == log.secrets.end())
    log.secrets.emplace_back(secret);
}

uint64_t DroppedLogEvents() {
  Log& log = TheLog();
  std::lock_guard lock(log.mutex);
  return log.dropped_before + (log.pool != nullptr ? log.pool->overrun_counter() : 0);
}

}  // namespace outboard::telemetry
