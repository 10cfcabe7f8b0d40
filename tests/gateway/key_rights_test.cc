// Ranges of addresses, scopes, and that no key makes one with more rights than its own.
#include "gateway/accounts/key_rights.h"

#include <gtest/gtest.h>

#include <string>

#include "base/check.h"

namespace outboard::gateway {
namespace {

TEST(AddressRange, Parse_OnlyWhatIsARange) {
  const struct {
    const char* text;
    const char* read_as;  // "": refused
  } cases[] = {
      {"10.0.0.0/8", "10.0.0.0/8"},
      {"0.0.0.0/0", "0.0.0.0/0"},
      {"192.168.1.7", "192.168.1.7"},
      {"192.168.1.7/32", "192.168.1.7"},
      {"fd00::/8", "fd00::/8"},
      {"::1", "::1"},
      {"::/0", "::/0"},
      {"0:0::0:1/128", "::1"},
      {"::ffff:10.0.0.1", "10.0.0.1"},
      {"::ffff:10.0.0.0/104", "10.0.0.0/8"},
      {"10.0.0.5/8", ""},
      {"fd00::1/8", ""},
      {"10.0.0.0/33", ""},
      {"::/129", ""},
      {"10.0.0.0/-1", ""},
      {"10.0.0.0/", ""},
      {"10.0.0.0/8x", ""},
      {"10.0.0.0/ 8", ""},
      {"10.0.0", ""},
      {"10.0.0.256", ""},
      {"010.0.0.1", ""},  // octal, or not: unclear
      {"box", ""},
      {"", ""},
      {"/8", ""},
      {"10.0.0.0/4294967304", ""},
  };
  for (const auto& c : cases) {
    const auto range = AddressRange::Parse(c.text);
    EXPECT_EQ(range.ok() ? range->ToString() : "", c.read_as) << c.text;
    if (!range.ok()) EXPECT_TRUE(absl::IsInvalidArgument(range.status())) << c.text;
  }
  EXPECT_FALSE(AddressRange::Parse(std::string(100'000, '1')).ok());
}

TEST(AddressRange, AnyContains_WhereAPeerIs) {
  const struct {
    const char *range, *peer;
    bool is_in;
  } cases[] = {
      {"10.0.0.0/8", "ipv4:10.255.0.1:6667", true},
      {"10.0.0.0/8", "ipv4:11.0.0.1:6667", false},
      {"10.128.0.0/9", "ipv4:10.127.255.255:1", false},
      {"10.0.0.1", "ipv4:10.0.0.1:1", true},
      {"10.0.0.1", "ipv4:10.0.0.2:1", false},
      {"0.0.0.0/0", "ipv4:1.2.3.4:5", true},
      {"::/0", "ipv4:1.2.3.4:5", false},
      {"0.0.0.0/0", "ipv6:%5B2001:db8::1%5D:5", false},
      {"2001:db8::/32", "ipv6:%5B2001:db8::1%5D:5", true},
      {"2001:db8::/32", "ipv6:[2001:db8:1::1]:5", true},
      {"2001:db8::/32", "ipv6:[2001:db9::1]:5", false},
      {"fe80::/10", "ipv6:%5Bfe80::1%25eth0%5D:5", true},
      {"10.0.0.0/8", "ipv6:[::ffff:10.1.2.3]:5", true},
      {"127.0.0.1", "unix:/run/outboard", true},
      {"::1", "unix:", true},
      {"127.0.0.0/8", "fd:7", true},
      {"127.0.0.1", "", true},
      {"10.0.0.0/8", "unix:/run/outboard", false},
      {"0.0.0.0/0", "ipv4:nonsense:5", false},
      {"0.0.0.0/0", "ipv4:", false},
      {"0.0.0.0/0", "vsock:10.0.0.1:5", false},
      {"127.0.0.1", "unknown", true},  // in process
  };
  for (const auto& c : cases) {
    const auto ranges = ValueOrDie(ParseRanges(c.range));
    EXPECT_EQ(AnyContains(ranges, AddressesOfPeer(c.peer)), c.is_in) << c.range << " " << c.peer;
  }
  EXPECT_FALSE(AnyContains({}, AddressesOfPeer("unix:")));
}

TEST(Scopes, Parse_ReadsWhatToStringWrites) {
  for (int bits = 1; bits <= Scopes::All().bits(); ++bits)
    EXPECT_EQ(*Scopes::Parse(Scopes::FromBits(bits).ToString()), Scopes::FromBits(bits));
  EXPECT_EQ(Scopes::Parse("admin,run")->ToString(), "run,admin");
  for (const char* wrong : {"", "all", "run,", "run usage", "Run", "run,,store"})
    EXPECT_TRUE(absl::IsInvalidArgument(Scopes::Parse(wrong).status())) << wrong;
  EXPECT_EQ(Scopes::FromBits(0xf0), Scopes());
}

TEST(Scopes, CheckScope_NamesWhatIsMissing) {
  EXPECT_TRUE(CheckScope(KeyScope::kStore, {KeyScope::kRun, KeyScope::kStore}).ok());
  const absl::Status lacks = CheckScope(KeyScope::kUsage, {KeyScope::kRun, KeyScope::kStore});
  EXPECT_TRUE(absl::IsPermissionDenied(lacks));
  EXPECT_NE(lacks.message().find("run or store"), absl::string_view::npos) << lacks;
}

KeyRights Rights(const char* scopes, int64_t expires_ms, const char* from) {
  KeyRights rights{.scopes = ValueOrDie(Scopes::Parse(scopes)),
                   .from = ValueOrDie(ParseRanges(from))};
  if (expires_ms != 0) rights.expires_at = WallTime{expires_ms};
  return rights;
}

TEST(KeyRights, CheckNoWider_RefusesEachKindOfMore) {
  const KeyRights limited = Rights("run,admin", 1000, "10.0.0.0/8,fd00::/8");
  const KeyRights all = Rights("run,usage,store,admin", 0, "");
  const struct {
    KeyRights maker, wanted;
    const char* lacks;  // "": allowed
  } cases[] = {
      {limited, limited, ""},
      {limited, Rights("admin", 999, "10.1.0.0/16"), ""},
      {limited, Rights("run", 1000, "10.0.0.1,fd00:1::/32"), ""},
      {limited, Rights("run,store", 1000, "10.0.0.0/8"), "scope store"},
      {limited, Rights("run", 1001, "10.0.0.0/8"), "expires later"},
      {limited, Rights("run", 0, "10.0.0.0/8"), "expires later"},
      {limited, Rights("run", 1000, ""), "addresses"},
      {limited, Rights("run", 1000, "10.0.0.0/7"), "addresses"},
      {limited, Rights("run", 1000, "10.0.0.0/8,11.0.0.0/8"), "addresses"},
      {limited, Rights("run", 1000, "::/0"), "addresses"},
      {all, all, ""},
      {all, limited, ""},
  };
  for (const auto& c : cases) {
    const absl::Status status = CheckNoWider(c.maker, c.wanted);
    EXPECT_EQ(status.ok(), *c.lacks == 0) << c.lacks << " " << status;
    if (status.ok()) continue;
    EXPECT_TRUE(absl::IsPermissionDenied(status));
    EXPECT_NE(status.message().find(c.lacks), absl::string_view::npos) << status;
  }
}

}  // namespace
}  // namespace outboard::gateway
