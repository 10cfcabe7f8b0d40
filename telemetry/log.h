// The log of the servers: one event per line, `key=value` or JSON, on stderr. An event has a name
// that never varies, such as session_opened, and fields; docs/logs.md describes the fields that
// many events share (session, step, account, request) and how values are written.
//
// Names and keys are literals of the program, checked when it is compiled; values may come from
// anybody: control characters, line breaks, bytes that are no UTF-8 and marks that reorder text are
// escaped, long values are cut, and what looks like an API key, or is a secret of this process
// (HideInLogs), is left out. Of an event that comes too often only some are written, and the next
// says how many were not.
//
// Nobody waits for whoever reads the log: lines go through a bounded queue, whose oldest are lost
// when it is full. Threads: any.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace outboard::telemetry {

// How much an event matters, least first; kOff is above all.
enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };
// key=value, or an object of JSON.
enum class LogFormat { kText, kJson };

// A name of an event or a field: lower case letters, digits and underscores, known when compiled.
class LogName {
 public:
  template <size_t N>
  consteval LogName(const char (&text)[N]) : text_(text, N - 1) {  // NOLINT: implicit
    for (const char c : text_)
      if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '_')
        throw "a name in the log has lower case letters, digits and underscores";
  }
  constexpr std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

// One field of an event. Text must live until the call that logs it returns. A text that is empty
// and an optional that has no value are left out.
struct LogField {
  using Value = std::variant<int64_t, uint64_t, double, bool, std::string_view>;

  template <typename T>
  LogField(LogName key, const T& value) : key(key), value(ValueOf(value)) {}

  LogName key;
  Value value;

 private:
  template <typename T>
  struct IsOptional : std::false_type {};
  template <typename T>
  struct IsOptional<std::optional<T>> : std::true_type {};

  template <typename T>
  static Value ValueOf(const T& value) {
    if constexpr (std::is_same_v<T, bool>)
      return value;
    else if constexpr (std::is_floating_point_v<T>)
      return static_cast<double>(value);
    else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>)
      return static_cast<int64_t>(value);
    else if constexpr (std::is_integral_v<T>)
      return static_cast<uint64_t>(value);
    else if constexpr (IsOptional<T>::value)
      return value.has_value() ? ValueOf(*value) : std::string_view();
    else if constexpr (std::is_convertible_v<const T&, std::string_view>)
      return std::string_view(value);
    else
      return std::string_view(value.data(), value.size());  // absl::string_view
  }
};

using LogFields = std::initializer_list<LogField>;

void LogDebug(LogName event, LogFields fields = {});
void LogInfo(LogName event, LogFields fields = {});
void LogWarning(LogName event, LogFields fields = {});
void LogError(LogName event, LogFields fields = {});
void LogAt(LogLevel level, LogName event, LogFields fields = {});

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
  // Of one event's name: how many may come at once, and how many a second after them. 0: any
  // number.
  double burst = 100, events_per_second = 10;
  // Takes each line, without a line break, in place of stderr; one call at a time. For tests.
  std::function<void(const std::string&)> sink;
};

// Sets how this process logs. Before it, events of level info go to stderr at once. Also replaces
// the options of an earlier call.
void StartLogging(LogOptions options);
// Writes what is queued, says what was suppressed, and logs as before StartLogging.
void StopLogging();

// A secret of this process, of at least 8 bytes, which no line shall have: "[hidden]" is in its
// place.
void HideInLogs(std::string_view secret);

// Lines that were lost since the start, as the queue was full.
uint64_t DroppedLogEvents();

}  // namespace outboard::telemetry
