// The files of a gateway's CA, where they cannot be read, are full, or are changed while it runs.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "gateway/tls/authority_files.h"
#include "gateway/tls/server_certificates.h"
#include "gateway/tls/worker_admission.h"
#include "tests/support/temp_folder.h"
#include "wire/tls/authority.h"
#include "wire/tls/limits.h"
#include "wire/tls/private_file.h"

namespace outboard::gateway {
namespace {

class TlsFiles : public ::testing::Test {
 protected:
  std::string data() const { return folder_.path(); }
  std::string At(const std::string& name) const { return TlsFolder(data()) + "/" + name; }
  IssuedCertificate Issued(size_t number) const {
    return {absl::StrCat(absl::Hex(number, absl::kZeroPad16), std::string(24, '7')),
            absl::Now() + absl::Hours(1), std::string(100, 'n')};
  }
  test::TempFolder folder_;
};

TEST_F(TlsFiles, AListThatCannotBeReadIsNotAnEmptyOne) {
  ASSERT_TRUE(Revoke(data(), "11").ok());
  ASSERT_TRUE(Revoke(data(), "22").ok());
  EXPECT_EQ(ValueOrDie(ReadRevoked(data())), (std::vector<std::string>{"11", "22"}));
  EXPECT_TRUE(ValueOrDie(ReadIssued(data())).empty());
  for (const char* name : {"revoked", "workers"}) {
    std::filesystem::remove(At(name));
    std::filesystem::create_directory(At(name));
  }
  EXPECT_FALSE(ReadRevoked(data()).ok());
  EXPECT_FALSE(Revoke(data(), "33").ok());
  EXPECT_FALSE(RecordIssued(data(), Issued(1)).ok());
  EXPECT_TRUE(std::filesystem::is_directory(At("revoked")));
  auto authority = ValueOrDie(EnsureAuthority(data()));
  EXPECT_FALSE(WorkerAdmission::Start(data(), authority, 3600).ok());
}

// As long as lines may be, the file that was written can be read again.
TEST_F(TlsFiles, AFullRecordIsReadAndKeepsTheNewest) {
  std::string text;
  const std::string name(60, 'n');
  for (size_t i = 0; i < kRecordLinesMax; ++i)
    absl::StrAppend(&text, Issued(i).serial, " 2999-01-01T00:00:00Z ", name, "\n");
  ASSERT_TRUE(tls::EnsurePrivateFolder(TlsFolder(data())).ok());
  ASSERT_TRUE(tls::WriteFile(At("workers"), text, true, tls::Replace::kYes).ok());
  ASSERT_EQ(ValueOrDie(ReadIssued(data())).size(), kRecordLinesMax);
  ASSERT_TRUE(RecordIssued(data(), Issued(kRecordLinesMax)).ok());
  const auto all = ValueOrDie(ReadIssued(data()));
  ASSERT_EQ(all.size(), kRecordLinesMax);
  EXPECT_EQ(all.back().serial, Issued(kRecordLinesMax).serial);
  EXPECT_EQ(all.front().serial, Issued(1).serial);
}

TEST_F(TlsFiles, ChangesOfSeveralAtOnceAreAllKept) {
  constexpr int kThreads = 4, kEach = 25;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      for (int k = 0; k < kEach; ++k) EXPECT_TRUE(Revoke(data(), absl::StrCat(i, "0000", k)).ok());
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ValueOrDie(ReadRevoked(data())).size(), size_t{kThreads * kEach});
}

TEST_F(TlsFiles, AnAddressInAnotherSpellingNeedsNoNewCertificate) {
  const TlsOptions options{.names = {"0:0:0:0:0:0:0:0001", "FD00:0::7", "gate.example.org"}};
  const auto now = [&] { return ValueOrDie(tls::ReadFile(At("server.pem"), true)); };
  { const auto first = ValueOrDie(ServerCertificates::Start(data(), options)); }
  const std::string before = now();
  { const auto again = ValueOrDie(ServerCertificates::Start(data(), options)); }
  EXPECT_EQ(now(), before);
  TlsOptions many;
  for (size_t i = 0; i < tls::kNamesMax - 2; ++i)
    many.names.push_back(absl::StrCat("a", i, ".example.org"));
  EXPECT_TRUE(absl::IsInvalidArgument(ServerCertificates::Start(data(), many).status()));
  many.names.pop_back();
  { const auto most = ValueOrDie(ServerCertificates::Start(data(), many)); }
  const std::string full = now();
  { const auto again = ValueOrDie(ServerCertificates::Start(data(), many)); }
  EXPECT_EQ(now(), full);
}

TEST_F(TlsFiles, AGivenCertificateThatChangesHasItsFingerprintWritten) {
  const auto authority = ValueOrDie(tls::Authority::Generate("given"));
  const std::string path = folder_ / "both.pem";
  const auto issue = [&] {
    EXPECT_TRUE(IssueServerFile(authority, path, {"localhost"}, 3600, tls::Replace::kYes).ok());
    const std::string pem = ValueOrDie(tls::ReadFile(path, true));
    return ValueOrDie(tls::Certificate::ParseAll(path, pem)).front().fingerprint().ToString();
  };
  const std::string first = issue();
  const auto certificates =
      ValueOrDie(ServerCertificates::Start(data(), {.certificate_file = path, .key_file = path}));
  EXPECT_EQ(certificates->FingerprintForClients(), first);
  ASSERT_TRUE(WriteFingerprint(data(), first).ok());  // as a gateway does
  const std::string second = issue();
  while (certificates->FingerprintForClients() != second)  // else the test's limit of time
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(ValueOrDie(FingerprintForClients(data())), second);
}

}  // namespace
}  // namespace outboard::gateway
