// What a child prints becomes lines of the log: told apart, escaped, bounded, and complete at its
// end.
#include "worker/process/child_output.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "telemetry/log.h"
#include "tests/support/processes.h"

namespace outboard::worker {
namespace {

using Lines = std::vector<std::pair<std::string, uint64_t>>;

Lines Split(const std::vector<std::string>& pieces, size_t bytes_max) {
  Lines lines;
  OutputLines split(bytes_max, [&](std::string_view line, uint64_t cut) {
    lines.emplace_back(std::string(line), cut);
  });
  for (const std::string& piece : pieces) split.Add(piece);
  split.Finish();
  return lines;
}

TEST(OutputLines, AreSplitWhereverTheirPiecesEnd) {
  EXPECT_EQ(Split({"one\ntw", "o\n", "\n\nthree"}, 100),
            (Lines{{"one", 0}, {"two", 0}, {"three", 0}}));
}

TEST(OutputLines, LongOnesAreCut) {
  EXPECT_EQ(Split({"123456789\nab", "cdef\n1234\n12345"}, 4),
            (Lines{{"1234", 5}, {"abcd", 2}, {"1234", 0}, {"1234", 1}}));
  EXPECT_EQ(Split({std::string(1 << 20, 'x')}, 4), (Lines{{"xxxx", (1 << 20) - 4}}));
}

class ChildOutputTest : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv("DEBUG");
    telemetry::StartLogging({.sink = [this](const std::string& line) {
      std::lock_guard lock(mutex_);
      log_.push_back(line);
    }});
    auto output = ChildOutput::Open();
    ASSERT_TRUE(output.ok()) << output.status();
    output_ = *std::move(output);
    // As the child has it.
    child_ = dup(output_->child_end());
    output_->Started();
  }
  void TearDown() override {
    output_.reset();
    telemetry::StopLogging();
    if (child_ >= 0) close(child_);
  }
  void Print(const std::string& text) const {
    for (size_t at = 0; at < text.size();) {
      const ssize_t put = write(child_, text.data() + at, text.size() - at);
      ASSERT_GT(put, 0);
      at += static_cast<size_t>(put);
    }
  }
  std::vector<std::string> Log() {
    std::lock_guard lock(mutex_);
    return log_;
  }
  bool HasLogged(const std::string& text) {
    for (const std::string& line : Log())
      if (line.find(text) != std::string::npos) return true;
    return false;
  }

  std::mutex mutex_;
  std::vector<std::string> log_;
  std::unique_ptr<ChildOutput> output_;
  int child_ = -1;
};

TEST_F(ChildOutputTest, ALineIsAnEventOfItsSession) {
  Print("before it has one\n");
  EXPECT_TRUE(test::Eventually([&] { return HasLogged("line=\"before it has one\""); }));
  output_->BelongsTo("5e55");
  Print("time=now level=error event=ledger_lost\x1b[2J\n");
  EXPECT_TRUE(test::Eventually([&] {
    return HasLogged(
        "event=executor_output session=5e55 "
        "line=\"time=now level=error event=ledger_lost\\u{1b}[2J\"");
  }));
}

TEST_F(ChildOutputTest, AFlood_IsReadAndCountedAndMostlyLeftOut) {
  std::string flood;
  for (int i = 0; i < 20'000; ++i) flood += "line of a flood\n";
  Print(flood);
  output_->Finish();
  EXPECT_LE(Log().size(), limits::kOutputLinesBurst + 20);
  EXPECT_TRUE(HasLogged("event=executor_output_left_out"));
}

TEST_F(ChildOutputTest, AtItsEnd_TheRestIsRead) {
  output_->BelongsTo("5e55");
  Print("first\nlast words without a line break");
  close(std::exchange(child_, -1));
  output_->Finish();
  EXPECT_TRUE(HasLogged("line=\"last words without a line break\""));
}

// A process that the child has left behind.
TEST_F(ChildOutputTest, APipeThatStaysOpen_IsNotWaitedFor) {
  Print("said\n");
  output_->Finish();
  EXPECT_TRUE(HasLogged("line=said"));
}

}  // namespace
}  // namespace outboard::worker
