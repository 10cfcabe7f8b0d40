// The price file: what is read, and which line of a wrong one is named.
#include "gateway/prices/price_list.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace outboard::gateway {
namespace {

constexpr char kTwoClasses[] = R"({
  "classes": [
    {"name": "large", "hardware": ["gpu-a:80*"], "memory": "80GB",
     "rates": {"gflops": 30000, "memory_gb_per_s": 1500.5},
     "usd_per_hour": {"run": 2.5, "held": "1.25", "parked": 0.02, "stored": "0.000001"}},
    {"name": "small", "hardware": ["x86-a", "x86-b*"],
     "usd_per_hour": {"run": "0.50"}}
  ]
}
)";

TEST(PriceList, Parse_TwoClasses_HasAllFields) {
  const auto list = ParsePriceList(kTwoClasses);
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->classes.size(), 2u);
  const PriceClass& large = list->classes[0];
  EXPECT_EQ(large.name, "large");
  EXPECT_EQ(large.memory_bytes, 80'000'000'000u);
  EXPECT_EQ(large.rates, (DeviceRates{30000, 1500.5}));
  EXPECT_EQ(large.run, MicroUsd{2'500'000});
  EXPECT_EQ(large.idle, (IdlePrices{MicroUsd{1'250'000}, MicroUsd{20'000}, MicroUsd{1}}));
  const PriceClass& small = list->classes[1];
  EXPECT_EQ(small.run, MicroUsd{500'000});
  EXPECT_EQ(small.idle, IdlePrices{}) << "HELD as RUN, the others for nothing";
  EXPECT_FALSE(small.rates.any());
  EXPECT_EQ(list->Names(), "large, small");
}

TEST(PriceList, ClassOf_HardwareAndMemory_FirstThatFits) {
  const auto list = ParsePriceList(kTwoClasses);
  ASSERT_TRUE(list.ok()) << list.status();
  const auto name = [&](const char* hardware, uint64_t bytes) {
    const PriceClass* const found = list->ClassOf(hardware, bytes);
    return found == nullptr ? "" : found->name;
  };
  EXPECT_EQ(name("gpu-a:80:132", 80'000'000'000), "large");
  EXPECT_EQ(name("gpu-a:80:132", 79'999'999'999), "") << "too little memory";
  EXPECT_EQ(name("x86-a", 0), "small");
  EXPECT_EQ(name("x86-a:2", 0), "") << "not a pattern";
  EXPECT_EQ(name("x86-b:2", 0), "small");
}

TEST(PriceList, Parse_WrongFile_NamesTheLine) {
  const std::string head = "{\"classes\": [\n {\"name\": \"a\", \"hardware\": [\"*\"],\n";
  const std::string end = "}\n]}";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "line 1: "},
      {"{\"classes\": []}", "line 1: "},
      {"{\"classes\": [1]}", "line 1: a class is an object"},
      {"{\n\"prices\": []}", "line 2: \"prices\" is not known here"},
      {head + "\"usd_per_hour\": {\"run\": -0.5}" + end, "line 3: the price \"run\" of -0.5"},
      {head + "\"usd_per_hour\": {\"run\": 0.5,\n\"parked\": \"-1\"}" + end, "line 4: "},
      {head + "\"usd_per_hour\": {\"run\": 1e3}" + end, "line 3: "},
      {head + "\"usd_per_hour\": {\"run\": 0.0000001}" + end, "line 3: "},
      {head + "\"usd_per_hour\": {\"run\": 1000001}" + end, "line 3: "},
      {head + "\"usd_per_hour\": {}" + end, "line 3: \"run\" is missing"},
      {head + "\"usd_per_hour\": {\"run\": 1}, \"rates\": {\"gflops\": -1}" + end, "line 3: "},
      {head + "\"usd_per_hour\": {\"run\": 1},\n\"memory\": \"8 apples\"" + end, "line 4: "},
      {head + "\"usd_per_hour\": {\"run\": 1}, \"memory\": \"99999999999GB\"" + end, "line 3: "},
      {head + "\"usd_per_hour\": {\"run\": 1}},\n{\"name\": \"a\", \"hardware\": [\"*\"],"
              "\"usd_per_hour\": {\"run\": 1}}\n]}",
       "line 4: a class \"a\" stands here twice"},
      {"{\"classes\": [\n\n{\"name\": \"own\", \"hardware\": [\"*\"],"
       "\"usd_per_hour\": {\"run\": 1}}]}",
       "line 3: the class \"own\""},
      {"{\"classes\": [{\"name\": \"a b\"}]}", "line 1: the name of a class"},
      {"{\"classes\": [\n{\"name\": \"a\", \"name\": \"b\"}]}", "line 2: \"name\" twice"},
      {std::string(100, '['), "line 1: more than"},
      {std::string(kTwoClasses) + "x", "line 10: something follows the end"},
  };
  for (const auto& [text, says] : cases) {
    const auto list = ParsePriceList(text);
    EXPECT_EQ(list.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(std::string(list.status().message()).substr(0, says.size()), says) << text;
  }
}

TEST(PriceList, Read_NoSuchFile_IsNotFound) {
  EXPECT_EQ(ReadPriceList("/nowhere/prices.json").status().code(), absl::StatusCode::kNotFound);
}

TEST(PriceList, CheckRates_FallsShort_IsRefused) {
  const PriceClass of{.name = "a", .rates = {100, 10}};
  EXPECT_TRUE(CheckRates(of, {100, 10}).ok());
  EXPECT_TRUE(CheckRates(of, {86, 8.6}).ok()) << "within what a moment's measurement may vary";
  EXPECT_EQ(CheckRates(of, {84, 10}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CheckRates(of, {100, 8.4}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(CheckRates({.name = "b"}, {}).ok()) << "a class without rates asks for none";
}

}  // namespace
}  // namespace outboard::gateway
