// Certificates, fingerprints and their checks, without a network.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "base/check.h"
#include "tests/support/temp_folder.h"
#include "wire/tls/authority.h"
#include "wire/tls/private_file.h"
#include "wire/tls/verify.h"

namespace outboard::tls {
namespace {

const Authority& Ours() {
  static const Authority authority = ValueOrDie(Authority::Generate("ours"));
  return authority;
}
const Authority& Theirs() {
  static const Authority authority = ValueOrDie(Authority::Generate("theirs"));
  return authority;
}

std::vector<Certificate> ServerOf(const Authority& authority, const std::string& name,
                                  int64_t lifetime_s = 3600, Purpose purpose = Purpose::kServer) {
  return ValueOrDie(authority.Issue({.common_name = name,
                                     .names = {name},
                                     .purpose = purpose,
                                     .lifetime_s = lifetime_s}))
      .chain;
}

TEST(CheckServer, SaysWhatIsWrong) {
  const Trust by_roots{.roots = {Ours().certificate()}};
  const Trust by_pin{.pinned = Ours().certificate().fingerprint()};
  const Trust by_both{.roots = {Ours().certificate()},
                      .pinned = Ours().certificate().fingerprint()};
  const Trust by_system{};
  const auto self_pinned = [](const std::vector<Certificate>& chain) {
    return Trust{.pinned = chain.front().fingerprint()};
  };
  const auto box = ServerOf(Ours(), "box");
  const struct {
    const char* what;
    std::vector<Certificate> chain;
    std::string host;
    Trust trust;
    std::string says;  // "": accepted
  } cases[] = {
      {"a root", box, "box", by_roots, ""},
      {"a pin of the CA", box, "box", by_pin, ""},
      {"a pin of the CA, whatever the name", box, "10.1.2.3", by_pin, ""},
      {"a pin of its own key", box, "box", self_pinned(box), ""},
      {"both", box, "box", by_both, ""},
      {"an address", ServerOf(Ours(), "10.1.2.3"), "10.1.2.3", by_roots, ""},
      {"IPv6", ServerOf(Ours(), "fd00::1"), "fd00::1", by_roots, ""},
      {"a wildcard", ServerOf(Ours(), "*.example.org"), "a.example.org", by_roots, ""},
      {"nothing", {}, "box", by_roots, "no certificate"},
      {"another name", box, "other", by_roots, "for another name (box)"},
      {"another address", ServerOf(Ours(), "10.1.2.3"), "10.1.2.4", by_roots, "for another name"},
      {"expired", ServerOf(Ours(), "box", -10), "box", by_roots, "expired on"},
      {"expired, pinned", ServerOf(Ours(), "box", -10), "box", by_pin, "expired on"},
      {"another CA", ServerOf(Theirs(), "box"), "box", by_roots, "of another CA (\"theirs\""},
      {"another CA, pinned", ServerOf(Theirs(), "box"), "box", by_pin, "of another CA"},
      {"unknown to the system", box, "box", by_system, "of another CA"},
      // Whoever has joined the fleet is not therefore its gateway.
      {"a worker's", ServerOf(Ours(), "box", 3600, Purpose::kWorker), "box", by_pin,
       "not made for this purpose"},
      {"a worker's, by roots", ServerOf(Ours(), "box", 3600, Purpose::kWorker), "box", by_roots,
       "not made for this purpose"},
      // Another's certificate with ours behind it, as anybody can send it.
      {"a chain of strangers",
       {ServerOf(Theirs(), "box").front(), Ours().certificate()},
       "box",
       by_pin,
       "of another CA"},
      {"the CA alone is no server", {Ours().certificate()}, "box", by_roots, "."},
  };
  for (const auto& c : cases) {
    const absl::Status status = CheckServer(c.chain, c.host, c.trust);
    if (c.says.empty()) {
      EXPECT_TRUE(status.ok()) << c.what << ": " << status;
      continue;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << c.what;
    if (c.says != ".")
      EXPECT_NE(status.message().find(c.says), std::string::npos) << c.what << ": " << status;
  }
}

TEST(CheckWorker, TakesOnlyWhatTheCaIssuedToWorkers) {
  const auto check = [](const std::vector<Certificate>& chain) {
    return CheckWorker(chain.front(), Ours().certificate());
  };
  EXPECT_TRUE(check(ServerOf(Ours(), "w", 60, Purpose::kWorker)).ok());
  EXPECT_TRUE(absl::IsUnauthenticated(check(ServerOf(Ours(), "w", -1, Purpose::kWorker))));
  EXPECT_TRUE(absl::IsUnauthenticated(check(ServerOf(Theirs(), "w", 60, Purpose::kWorker))));
  EXPECT_TRUE(absl::IsUnauthenticated(check(ServerOf(Ours(), "w"))));
}

TEST(Authority, IssuesForARequestOnlyWhatItDecides) {
  const PrivateKey key = ValueOrDie(PrivateKey::Generate());
  const std::string request = ValueOrDie(MakeRequest(key));
  const auto chain = Ours().IssueFor(
      request, {.common_name = "outboard worker", .purpose = Purpose::kWorker, .lifetime_s = 60});
  ASSERT_TRUE(chain.ok()) << chain.status();
  EXPECT_TRUE(key.Fits(chain->front()));
  EXPECT_EQ(ValueOrDie(RequestKeyId(request)), chain->front().key_id());
  EXPECT_FALSE(chain->front().is_authority());
  EXPECT_LT(chain->front().not_after(), absl::Now() + absl::Seconds(61));
  std::string damaged = request;
  damaged[damaged.size() - 5] ^= 1;  // of the signature
  for (const std::string& bad : {std::string(), std::string("x"), damaged, request.substr(0, 100),
                                 std::string(kRequestBytesMax + 1, 'x')})
    for (const absl::Status& status :
         {Ours().IssueFor(bad, {.common_name = "w"}).status(), RequestKeyId(bad).status()})
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

TEST(Authority, NamesAreCheckedBeforeTheyAreWritten) {
  for (const char* good : {"box", "box.example.org", "*.example.org", "10.0.0.1", "::1", "a_b"})
    EXPECT_TRUE(CheckCertificateName(good).ok()) << good;
  for (const std::string bad :
       {std::string(""), std::string("a b"), std::string("a,DNS:b"), std::string("*"),
        std::string("-x"), std::string("a\nb"), std::string(300, 'a'), std::string("a;b")})
    EXPECT_TRUE(absl::IsInvalidArgument(CheckCertificateName(bad))) << bad;
  EXPECT_TRUE(absl::IsInvalidArgument(
      Ours().Issue({.common_name = "x", .names = {"x,IP:1.2.3.4"}}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      Ours()
          .Issue({.common_name = "x", .names = std::vector<std::string>(kNamesMax + 1, "x")})
          .status()));
}

TEST(KeyAndChain, IsWholeOrRefused) {
  const KeyAndChain made = ValueOrDie(Ours().Issue({.common_name = "x", .names = {"x"}}));
  const std::string pem = made.ToPem();
  const KeyAndChain read = ValueOrDie(KeyAndChain::Parse("file", pem, pem));
  EXPECT_EQ(read.chain.size(), 2u);
  EXPECT_EQ(read.chain.front().fingerprint(), made.chain.front().fingerprint());
  EXPECT_EQ(made.ChainToPem().find("PRIVATE"), std::string::npos);
  const KeyAndChain other = ValueOrDie(Ours().Issue({.common_name = "y", .names = {"y"}}));
  const std::string half = pem.substr(0, pem.size() / 2);
  for (const auto& [key, chain] : {std::pair(other.key.ToPem(), made.ChainToPem()),
                                   {"", made.ChainToPem()},
                                   {pem, ""},
                                   {half, half},
                                   {pem, std::string(kPemBytesMax + 1, 'x')}})
    EXPECT_TRUE(absl::IsInvalidArgument(KeyAndChain::Parse("file", key, chain).status()));
}

TEST(Fingerprint, IsReadAsPeopleWriteIt) {
  const Fingerprint made = Ours().certificate().fingerprint();
  const std::string text = made.ToString();
  EXPECT_EQ(text.size(), 7u + 64u);
  std::string with_colons = "SHA256:";
  for (size_t i = 7; i < text.size(); ++i) {
    if (i > 7 && (i - 7) % 2 == 0) with_colons += ':';
    with_colons += static_cast<char>(std::toupper(text[i]));
  }
  for (const std::string& good : {text, with_colons})
    EXPECT_EQ(ValueOrDie(Fingerprint::Parse("CLOUD_FINGERPRINT", good)), made) << good;
  for (const std::string bad : {std::string(""), text.substr(7), text.substr(0, 70), text + "0",
                                std::string("sha1:00"), std::string("sha256:") + "zz"}) {
    const absl::Status status = Fingerprint::Parse("CLOUD_FINGERPRINT", bad).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad;
    EXPECT_NE(status.message().find("CLOUD_FINGERPRINT"), std::string::npos);
  }
}

TEST(PrivateFile, IsForItsOwnerAlone) {
  const test::TempFolder folder;
  const std::string path = folder / "key";
  ASSERT_TRUE(WriteFile(path, "one", /*is_secret=*/true, Replace::kNo).ok());
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_TRUE(absl::IsAlreadyExists(WriteFile(path, "two", true, Replace::kNo)));
  EXPECT_EQ(ValueOrDie(ReadFile(path, true)), "one");
  ASSERT_TRUE(WriteFile(path, "two", true, Replace::kYes).ok());
  EXPECT_EQ(ValueOrDie(ReadFile(path, true)), "two");
  EXPECT_EQ(test::CountFiles(folder.path()), 1);  // nothing stays beside it
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadFile(path, true).status()));
  EXPECT_TRUE(ReadFile(path, false).ok());
  EXPECT_TRUE(absl::IsNotFound(ReadFile(folder / "none", true).status()));
}

}  // namespace
}  // namespace outboard::tls
