// `outboard push`, `pull` and `store` as a user has them: real processes, a gateway with keys.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "cli/progress_line.h"
#include "client/files/file_index.h"
#include "client/files/safetensors_header.h"
#include "tests/support/gateway_test.h"
#include "tests/support/paths.h"
#include "tests/support/processes.h"

namespace outboard {
namespace {

class StoreCliTest : public test::GatewayTest {
 protected:
  void SetUp() override {
    gateway::GatewayOptions options;
    options.quota_bytes = quota_bytes;
    StartGateway(options);
    key_ = TextOf(MakeKey());
    std::filesystem::create_directories(folder_ / "here");
  }

  std::vector<std::string> Environment() const {
    return {"CLOUD_HOST=" + gateway_->address(), "CLOUD_KEY=" + key_,
            "OUTBOARD_FILE_INDEX=" + (folder_ / "index")};
  }
  // In `here`; the program has no flag for that, so a shell changes to it.
  std::vector<std::string> Command(std::vector<std::string> args) const {
    std::vector<std::string> argv = {"/bin/sh", "-c", "cd \"$0\" && exec \"$@\"", folder_ / "here",
                                     test::kOutboardProgram};
    argv.insert(argv.end(), args.begin(), args.end());
    return argv;
  }
  test::Ended Run(std::vector<std::string> args) {
    return test::RunToEnd(Command(std::move(args)), Environment());
  }
  std::string File(const std::string& name, const std::string& bytes) {
    const std::string path = folder_ / ("here/" + name);
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  static std::string Noise(size_t size, unsigned seed) {
    std::mt19937 random(seed);
    std::string bytes(size, '\0');
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<char>(random()); });
    return bytes;
  }
  // With a header that WriteSafetensorsHeader would not make: spaces, an odd order.
  static std::string Safetensors(const std::string& w, const std::string& b) {
    const std::string json = "{ \"w\": {\"shape\":[" + std::to_string(w.size()) +
                             "],\"dtype\":\"U8\",\"data_offsets\":[0," + std::to_string(w.size()) +
                             "]}, \"__metadata__\":{\"by\":\"hand\"},\"b\":{\"dtype\":\"F32\","
                             "\"shape\":[],\"data_offsets\":[" +
                             std::to_string(w.size()) + "," + std::to_string(w.size() + b.size()) +
                             "]}}  ";
    std::string length(8, '\0');
    length[0] = static_cast<char>(json.size() & 0xff);
    length[1] = static_cast<char>(json.size() >> 8);
    return length + json + w + b;
  }

  uint64_t quota_bytes = 24 << 20;
  std::string key_;
};

TEST_F(StoreCliTest, FilesGoUpAndComeBackToTheBit) {
  const std::string notes = Noise(5 << 20, 1), model = Safetensors(Noise(9 << 20, 2), "bias");
  File("notes.txt", notes);
  File("model.safetensors", model);
  test::Ended ended = Run({"push", "notes.txt", "model.safetensors"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("notes.txt  5.2 MB, 5.2 MB sent"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("in 2 arrays"), std::string::npos) << ended.out;
  EXPECT_EQ(ended.err, "");  // no terminal, no line

  // The same again, under another name: nothing is sent.
  ended = Run({"push", "--json", "--name", "runs/7", "model.safetensors"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("\"sent_bytes\": 0, \"arrays\": 2"), std::string::npos) << ended.out;

  ended = Run({"pull", "notes.txt", "-o", "back.txt"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(test::ReadFile(folder_ / "here/back.txt"), notes);
  ended = Run({"pull", "runs/7", "--json"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("\"file\": \"7.safetensors\""), std::string::npos) << ended.out;
  EXPECT_EQ(test::ReadFile(folder_ / "here/7.safetensors"), model);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "here/7.safetensors.part"));
}

// Who stored a file does not choose what it replaces here, or what this user's programs read.
TEST_F(StoreCliTest, APullReplacesNothingAndHidesNothing) {
  File("notes.txt", "new");
  File(".profile", "run me");
  ASSERT_EQ(Run({"push", "notes.txt"}).code, 0);
  ASSERT_EQ(Run({"push", ".profile", "--name", "settings"}).code, 0);
  File("notes.txt", "mine");
  test::Ended ended = Run({"pull", "notes.txt"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.err.find("notes.txt is there already; --force replaces it"), std::string::npos)
      << ended.err;
  EXPECT_EQ(test::ReadFile(folder_ / "here/notes.txt"), "mine");
  std::filesystem::create_symlink("nowhere", folder_ / "here/link");
  EXPECT_EQ(Run({"pull", "notes.txt", "-o", "link"}).code, 1);
  ended = Run({"pull", "notes.txt", "--force"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(test::ReadFile(folder_ / "here/notes.txt"), "new");
  File(".profile", "mine");
  ended = Run({"pull", "settings", "--force"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.err.find("say with --output where it goes"), std::string::npos) << ended.err;
  EXPECT_EQ(test::ReadFile(folder_ / "here/.profile"), "mine");
  EXPECT_EQ(Run({"pull", "settings", "-o", "there"}).code, 0);
  EXPECT_EQ(test::ReadFile(folder_ / "here/there"), "run me");
}

TEST_F(StoreCliTest, NamesAreListedPinnedAndRemoved) {
  File("a", "1");
  File("b", "22");
  ASSERT_EQ(Run({"push", "a", "b"}).code, 0);
  ASSERT_EQ(Run({"push", "a", "--name", "x/a"}).code, 0);
  test::Ended ended = Run({"store", "ls"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(std::count(ended.out.begin(), ended.out.end(), '\n'), 4);  // and a heading
  ended = Run({"store", "ls", "--json", "x/"});
  EXPECT_EQ(std::count(ended.out.begin(), ended.out.end(), '\n'), 1);
  EXPECT_NE(ended.out.find("{\"name\": \"x/a\", \"bytes\": 1, \"entries\": 1, \"written\": \"20"),
            std::string::npos)
      << ended.out;
  EXPECT_EQ(Run({"store", "pin", "b", "--json"}).out, "{\"name\": \"b\", \"pinned\": true}\n");
  EXPECT_NE(Run({"store", "ls"}).out.find("pinned"), std::string::npos);
  ended = Run({"store", "rm", "b"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.err.find("outboard store unpin b"), std::string::npos) << ended.err;
  EXPECT_EQ(Run({"store", "unpin", "b", "--json"}).out, "{\"name\": \"b\", \"pinned\": false}\n");
  ended = Run({"store", "rm", "a", "b"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  ended = Run({"store", "du", "--json"});
  EXPECT_NE(ended.out.find("\"names\": 1}"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("\"quota_bytes\": 25165824"), std::string::npos) << ended.out;
  EXPECT_NE(Run({"store", "du"}).out.find(" of 25.2 MB used"), std::string::npos);
  ASSERT_EQ(Run({"store", "rm", "x/a"}).code, 0);
  EXPECT_NE(Run({"store", "du", "--json"}).out.find("\"used_bytes\": 0,"), std::string::npos);
}

// What the index says of a file is believed: here, that it has the bytes of another.
TEST_F(StoreCliTest, AFileThatIsKnownIsNotRead) {
  const std::string one = Noise(5000, 5), other = Noise(5000, 6);
  File("one", one);
  ASSERT_EQ(Run({"push", "one"}).code, 0);
  const int fd = open(File("other", other).c_str(), O_RDONLY);
  const files::FileRange all{0, other.size()};
  const wire::BlobName name = wire::NameBlob(one);
  files::FileIndex(folder_ / "index")
      .Keep(files::StampOf(fd).value(), {&all, 1}, {&name, 1},
            files::WallNowNs() + 2 * files::kFreshMs * 1'000'000);
  close(fd);
  ASSERT_EQ(Run({"push", "other"}).code, 0);
  ASSERT_EQ(Run({"pull", "other", "-o", "back"}).code, 0);
  EXPECT_EQ(test::ReadFile(folder_ / "here/back"), one);
}

TEST_F(StoreCliTest, WhatAPushHasReadIsKnown) {
  const std::string old = "/bin/sh";  // what was written a moment ago is not believed
  const int fd = open(old.c_str(), O_RDONLY);
  const files::FileStamp stamp = files::StampOf(fd).value();
  close(fd);
  ASSERT_EQ(Run({"push", old}).code, 0);
  const files::FileRange all{0, stamp.size_bytes};
  const auto known = files::FileIndex(folder_ / "index").Find(stamp, {&all, 1})[0];
  ASSERT_TRUE(known.has_value());
  EXPECT_EQ(known->root, wire::NameBlob(test::ReadFile(old)).root);
}

TEST_F(StoreCliTest, WhyAFileIsNotStoredByItsArraysIsTold) {
  files::SafetensorsHeader header;
  for (int i = 0; i < 8193; ++i)
    header.arrays.push_back({std::to_string(i), DType::kU8, {0}, 0, 0});
  File("many.safetensors", files::WriteSafetensorsHeader(header));
  const std::string json = R"({"w": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}})";
  File("complex.safetensors",
       std::string(1, static_cast<char>(json.size())) + std::string(7, '\0') + json + "8 bytes.");
  const test::Ended many = Run({"push", "many.safetensors"});
  EXPECT_EQ(many.code, 0);
  EXPECT_EQ(many.err,
            "outboard: many.safetensors is stored as it is, not by its arrays: "
            "it has 8193 arrays; limit 8192\n");
  const test::Ended complex = Run({"push", "--json", "complex.safetensors"});
  EXPECT_EQ(complex.code, 0);
  EXPECT_NE(complex.out.find("\"arrays\": 0, \"whole_because\": \""), std::string::npos)
      << complex.out;
  EXPECT_NE(complex.out.find("C64"), std::string::npos) << complex.out;
}

TEST_F(StoreCliTest, MistakesAreTold) {
  File("a", "1");
  const struct {
    std::vector<std::string> args;
    int code;
    std::string text;
  } cases[] = {
      {{"push", "nowhere"}, 2, "cannot open nowhere"},
      {{"push", "."}, 2, "is no regular file"},
      {{"push", "a", "--name", "../up"}, 2, "a name has 1 to 255 letters"},
      {{"push", "a", "a", "--name", "n"}, 2, "--name is for a single file"},
      {{"push"}, 2, "see `outboard push --help`"},
      {{"pull", "never"}, 1, "nothing is stored as never"},
      {{"pull", "a", "--gateway", "nowhere"}, 2, "--gateway"},
      {{"store", "rm", "never"}, 1, "nothing is stored as never"},
      {{"store", "pin", "never"}, 1, "nothing is stored as never"},
  };
  for (const auto& c : cases) {
    const test::Ended ended = Run(c.args);
    EXPECT_EQ(ended.code, c.code) << c.text << ": " << ended.err;
    EXPECT_NE(ended.err.find(c.text), std::string::npos) << ended.err;
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
  }
  key_ = "ob_live_wrong";
  EXPECT_EQ(Run({"store", "ls"}).code, 2);
  EXPECT_EQ(Run({"push", "a"}).code, 2);
}

TEST_F(StoreCliTest, AFullQuotaSaysSo) {
  File("large", Noise(30 << 20, 3));
  const test::Ended ended = Run({"push", "large"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.err.find("the quota of 25165824 bytes is used up"), std::string::npos)
      << ended.err;
}

// Ctrl-C at some time: the same command goes on, and what comes back is the file.
TEST_F(StoreCliTest, CtrlCIsResumed) {
  const std::string bytes = Noise(12 << 20, 4);
  File("large", bytes);
  int stopped = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    test::Process push(Command({"push", "large"}), Environment());
    std::this_thread::sleep_for(std::chrono::milliseconds(15 + 10 * attempt));
    push.Signal(SIGINT);
    const int code = push.Wait();
    // Before it has asked for the signal it ends by it.
    EXPECT_TRUE(code == 130 || code == 0) << code << push.err();
    if (push.err().find("the same command goes on") != std::string::npos) ++stopped;
  }
  std::cout << stopped << " of 5 were stopped in the transfer\n";
  ASSERT_EQ(Run({"push", "large"}).code, 0);
  for (int attempt = 0; attempt < 2; ++attempt) {
    test::Process pull(Command({"pull", "large", "-o", "back", "--force"}), Environment());
    std::this_thread::sleep_for(std::chrono::milliseconds(15 + 10 * attempt));
    pull.Signal(SIGINT);
    pull.Wait();
  }
  ASSERT_EQ(Run({"pull", "large", "-o", "back", "--force"}).code, 0);
  EXPECT_EQ(test::ReadFile(folder_ / "here/back"), bytes);
}

TEST(ProgressLine, SaysBytesRateTimeAndWhatWasSaved) {
  using cli::Bytes;
  EXPECT_EQ(Bytes(0), "0 B");
  EXPECT_EQ(Bytes(999), "999 B");
  EXPECT_EQ(Bytes(1000), "1.0 kB");
  EXPECT_EQ(Bytes(999'960), "1.0 MB");
  EXPECT_EQ(Bytes(23'140'000'000), "23.1 GB");
  EXPECT_EQ(cli::ProgressText("x", {.total_bytes = 4'000'000'000}, 0.1), "x  0 B of 4.0 GB");
  EXPECT_EQ(
      cli::ProgressText(
          "x", {.total_bytes = 4'000'000, .moved_bytes = 1'000'000, .saved_bytes = 1'000'000}, 2.0),
      "x  2.0 MB of 4.0 MB  500.0 kB/s  4 s left  1.0 MB saved");
}

}  // namespace
}  // namespace outboard
