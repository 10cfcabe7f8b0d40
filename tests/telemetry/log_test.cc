// The log: how values are written, what is left out, how often an event may come.
#include "telemetry/log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "telemetry/counters.h"
#include "telemetry/log_line.h"

namespace outboard::telemetry {
namespace {

using Strings = std::vector<std::string>;

TEST(LogLine, Values_AreEscaped) {
  const struct {
    std::string value, text, json;
  } cases[] = {
      {"plain", "plain", "\"plain\""},
      {"gpu-3#12", "gpu-3#12", "\"gpu-3#12\""},
      {"", "\"\"", "\"\""},
      {"two words", "\"two words\"", "\"two words\""},
      {"a=b", "\"a=b\"", "\"a=b\""},
      {"a\"b\\c", "\"a\\\"b\\\\c\"", "\"a\\\"b\\\\c\""},
      {"a\nlevel=error", "\"a\\nlevel=error\"", "\"a\\u000alevel=error\""},
      {"a\r\n", "\"a\\u{d}\\n\"", "\"a\\u000d\\u000a\""},
      {std::string("a\0b", 3), "\"a\\u{0}b\"", "\"a\\u0000b\""},
      {"\x1b[31mred", "\"\\u{1b}[31mred\"", "\"\\u001b[31mred\""},
      {"\xc2\x85next", "\"\\u{85}next\"", "\"\\u0085next\""},  // C1: next line
      {"\xe2\x80\xa8", "\"\\u{2028}\"", "\"\\u2028\""},        // line separator
      {"\xe2\x80\xae"
       "evil",
       "\"\\u{202e}evil\"", "\"\\u202eevil\""},  // right to left
      {"\xef\xbb\xbf", "\"\\u{feff}\"", "\"\\ufeff\""},
      {"\xf3\xa0\x80\x81", "\"\\u{e0001}\"", "\"\\udb40\\udc01\""},  // a tag
      {"caf\xc3\xa9", "\"caf\xc3\xa9\"", "\"caf\xc3\xa9\""},
      {"\xff\xfe", "\"\\xff\\xfe\"", "\"\\ufffd\\ufffd\""},
      {"\xc0\xaf", "\"\\xc0\\xaf\"", "\"\\ufffd\\ufffd\""},                  // overlong
      {"\xed\xa0\x80", "\"\\xed\\xa0\\x80\"", "\"\\ufffd\\ufffd\\ufffd\""},  // a surrogate
      {"cut\xe2\x80", "\"cut\\xe2\\x80\"", "\"cut\\ufffd\\ufffd\""},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(TextValue(c.value), c.text);
    EXPECT_EQ(JsonValue(c.value), c.json);
  }
}

TEST(LogLine, LongValue_IsCutAndSaysHowMuch) {
  const std::string value(kLogValueBytesMax + 7, 'x');
  const std::string kept(kLogValueBytesMax, 'x');
  EXPECT_EQ(TextValue(value), "\"" + kept + " ... and 7 bytes\"");
  // Never within a character.
  const std::string wide = std::string(kLogValueBytesMax - 1, 'x') + "\xc3\xa9";
  EXPECT_EQ(TextValue(wide), "\"" + std::string(kLogValueBytesMax - 1, 'x') + " ... and 2 bytes\"");
}

TEST(LogLine, AnyBytes_AreOneLineOfValidText) {
  const char* given = std::getenv("OUTBOARD_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  SCOPED_TRACE("OUTBOARD_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 20'000; ++i) {
    std::string value(random() % 40, ' ');
    for (char& c : value) c = static_cast<char>(random());
    const LogField field("value", value);
    const std::string text =
        FormatLine(LogFormat::kText, 0, LogLevel::kInfo, "e", {&field, 1}, 0, {});
    const std::string json =
        FormatLine(LogFormat::kJson, 0, LogLevel::kInfo, "e", {&field, 1}, 0, {});
    for (const std::string& line : {text, json})
      for (const char c : line) ASSERT_GE(static_cast<unsigned char>(c), 0x20u) << line;
    ASSERT_TRUE(nlohmann::json::accept(json)) << json;  // which also looks at the UTF-8
  }
}

TEST(LogLine, Json_HasTypes) {
  const LogField fields[] = {{"account", int64_t{3}}, {"lost", true}, {"seconds", 0.25},
                             {"name", "a\nb"},        {"none", ""},   {"count", uint64_t{1} << 63}};
  const std::string line = FormatLine(LogFormat::kJson, 1'700'000'000'123, LogLevel::kWarning,
                                      "it_happened", fields, 9, {});
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["time"], "2023-11-14T22:13:20.123Z");
  EXPECT_EQ(json["level"], "warning");
  EXPECT_EQ(json["event"], "it_happened");
  EXPECT_EQ(json["account"], 3);
  EXPECT_EQ(json["lost"], true);
  EXPECT_EQ(json["seconds"], 0.25);
  EXPECT_EQ(json["name"], "a\nb");
  EXPECT_EQ(json["count"], uint64_t{1} << 63);
  EXPECT_EQ(json["suppressed"], 9);
  EXPECT_FALSE(json.contains("none"));
}

TEST(LogLine, Text_IsKeysAndValues) {
  const LogField fields[] = {{"session", "ab12"}, {"step", uint64_t{7}}, {"why", "no device"}};
  EXPECT_EQ(FormatLine(LogFormat::kText, 0, LogLevel::kInfo, "step_failed", fields, 0, {}),
            "time=1970-01-01T00:00:00.000Z level=info event=step_failed session=ab12 step=7 "
            "why=\"no device\"");
}

TEST(LogLine, Secrets_AreLeftOut) {
  const Strings secrets = {"fleet-secret-1234"};
  const std::string id = "0123456789abcdef";
  const struct {
    std::string text, without;
  } cases[] = {
      {"the key ob_live_" + id + "_SECRETsecret-xyz is wrong",
       "the key ob_live_" + id + "[hidden] is wrong"},
      {"ob_live_short_SECRET", "ob_live_[hidden]"},
      {"ob_live_" + id, "ob_live_" + id},
      {"ob_live_" + id + "more", "ob_live_[hidden]"},
      {"ob_live_", "ob_live_"},
      {"two: ob_live_a1,ob_live_b2", "two: ob_live_[hidden],ob_live_[hidden]"},
      {"Bearer fleet-secret-1234!", "Bearer [hidden]!"},
      {"fleet-secret-123", "fleet-secret-123"},
  };
  for (const auto& c : cases) EXPECT_EQ(WithoutSecrets(c.text, secrets), c.without);
  // Not even in part, where the value is cut.
  const std::string long_text =
      std::string(kLogValueBytesMax - 30, 'x') + "ob_live_" + id + "_SECRETsecretSECRETsecret";
  const LogField field("message", long_text);
  const std::string line =
      FormatLine(LogFormat::kText, 0, LogLevel::kInfo, "e", {&field, 1}, 0, secrets);
  EXPECT_EQ(line.find("SECRET"), std::string::npos);
}

class LogTest : public ::testing::Test {
 protected:
  void Start(LogOptions options = {}) {
    options.sink = [this](const std::string& line) { lines_.push_back(line); };
    StartLogging(std::move(options));
  }
  void TearDown() override { StopLogging(); }
  size_t LinesWith(std::string_view text) const {
    size_t count = 0;
    for (const std::string& line : lines_) count += line.find(text) != std::string::npos;
    return count;
  }

  Strings lines_;
};

TEST_F(LogTest, Levels_AreKeptApart) {
  Start({.level = LogLevel::kWarning});
  LogDebug("one");
  LogInfo("two");
  LogWarning("three");
  LogError("four");
  EXPECT_EQ(lines_.size(), 2u);
  Start({.level = LogLevel::kOff});
  LogError("five");
  EXPECT_EQ(lines_.size(), 2u);
}

TEST_F(LogTest, TooManyOfOneName_AreSuppressedAndCounted) {
  Start({.burst = 5, .events_per_second = 0.001});
  const uint64_t before = CountOf(Metric::kLogSuppressed);
  for (int i = 0; i < 100; ++i) LogInfo("noisy", {{"i", i}});
  LogInfo("quiet");
  EXPECT_EQ(LinesWith("event=noisy"), 5u);
  EXPECT_EQ(LinesWith("event=quiet"), 1u) << "another name has its own allowance";
  EXPECT_EQ(CountOf(Metric::kLogSuppressed), before + 95);
  StopLogging();
  EXPECT_EQ(LinesWith("event=log_suppressed of=noisy suppressed=95"), 1u) << lines_.back();
}

TEST_F(LogTest, Secret_IsHiddenEverywhere) {
  Start();
  HideInLogs("a-secret-of-this-process");
  HideInLogs("abc");  // too short: it would hide words
  LogError("it_failed", {{"message", "with a-secret-of-this-process and abc"}});
  EXPECT_EQ(LinesWith("a-secret"), 0u);
  EXPECT_EQ(LinesWith("and abc"), 1u);
}

TEST(LogToStderr, QueueIsWrittenAtTheEnd) {
  testing::internal::CaptureStderr();
  StartLogging({.events_per_second = 0});
  for (int i = 0; i < 1'000; ++i) LogInfo("counted", {{"i", i}});
  StopLogging();
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1'000);
  EXPECT_NE(text.find("event=counted i=999\n"), std::string::npos);
}

}  // namespace
}  // namespace outboard::telemetry
