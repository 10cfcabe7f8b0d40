// Every case of hostile input against a live cluster, beside an honest account that notices
// nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <set>

#include "tests/hostile/hostile_case.h"
#include "tests/hostile/two_samples.h"

namespace outboard {
namespace {

using test::HostileCase;

class HostileTest : public ::testing::TestWithParam<HostileCase> {
 protected:
  static void SetUpTestSuite() {
    world_ = new test::HostileWorld;
    for (const HostileCase& one : test::AllHostileCases())
      if (one.begin != nullptr && Runs(one)) one.begin(*world_);
  }
  static void TearDownTestSuite() {
    world_->CheckAtEnd();
    delete world_;
  }
  // What begins is ended by its own test, which a filter may have left out.
  static bool Runs(const HostileCase& one) {
    const auto* const suite = ::testing::UnitTest::GetInstance()->current_test_suite();
    for (int i = 0; i < suite->total_test_count(); ++i) {
      const auto* const info = suite->GetTestInfo(i);
      if (info->should_run() && std::string(info->name()).ends_with("/" + one.name)) return true;
    }
    return false;
  }
  static test::HostileWorld* world_;
};
test::HostileWorld* HostileTest::world_ = nullptr;

TEST_P(HostileTest, IsAnswered_AndAnHonestAccountWorksOn) {
  const HostileCase& one = GetParam();
  if (!one.skipped.empty() &&
      (one.run == nullptr || std::getenv("OUTBOARD_HOSTILE_ALL") == nullptr))
    GTEST_SKIP() << one.skipped;
  const absl::Status answer = one.run(*world_);
  EXPECT_NE(std::find(one.codes.begin(), one.codes.end(), answer.code()), one.codes.end())
      << "who " << one.what << " gets " << answer;
  EXPECT_TRUE(std::regex_search(std::string(answer.message()), std::regex(one.words)))
      << answer << "\nhas not the words " << one.words;
  world_->CheckAfterCase();
}

INSTANTIATE_TEST_SUITE_P(Cases, HostileTest, ::testing::ValuesIn(test::AllHostileCases()),
                         [](const auto& info) { return info.param.name; });

TEST(TwoSamples, Distance_TellsAShift) {
  std::vector<double> a, b, shifted;
  for (int i = 0; i < 2'000; ++i) {
    a.push_back(i % 97);
    b.push_back((i * 7) % 97);
    shifted.push_back(i % 97 + 20);
  }
  const double bound = test::DistanceBound(a.size(), 1e-6);
  EXPECT_LT(test::DistanceOf(a, b), bound);
  EXPECT_GT(test::DistanceOf(a, shifted), bound);
  EXPECT_EQ(test::DistanceOf({1, 2}, {3, 4}), 1.0);
}

TEST(HostileCases, NamesAreUnique_AndNoneIsLeftOut) {
  std::set<std::string> names;
  std::set<int> numbers;
  for (const HostileCase& one : test::AllHostileCases()) {
    EXPECT_TRUE(names.insert(one.name).second) << one.name;
    EXPECT_TRUE(one.run != nullptr || !one.skipped.empty())
        << one.name << " neither runs nor says why";
    numbers.insert(one.number);
  }
  for (int number = 106; number <= 137; ++number) EXPECT_TRUE(numbers.contains(number)) << number;
}

}  // namespace
}  // namespace outboard
