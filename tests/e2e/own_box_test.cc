// docs/own-box.md, tried as written: its program (which the build takes out of the page), its
// commands, and what it says one sees when they are wrong.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/cluster.h"
#include "tests/support/paths.h"

namespace outboard {
namespace {

std::string Page() { return test::ReadFile(test::SourceFile("docs/own-box.md")); }

// The arguments of an `outboard` command that stands on the page.
std::string AsWritten(const std::string& args) {
  EXPECT_NE(Page().find("build/bin/outboard " + args), std::string::npos) << args;
  return args;
}

TEST(OwnBox, ThePagesProgramFitsItsLine) {
  test::Cluster box;
  // Where the page keeps things, and a port of the test's: the page's may be somebody's.
  const std::string data = box.data();
  const std::vector<std::string> home = {"OUTBOARD_DATA=" + data, "XDG_CACHE_HOME=" + data};
  const auto serve = box.Start(AsWritten("serve") + " --listen 127.0.0.1:0", home);
  const test::Ended made = test::Outboard(AsWritten("key create --name laptop"), home);
  ASSERT_EQ(made.code, 0) << made.err;
  const std::string key = made.out.substr(0, made.out.find('\n'));
  EXPECT_EQ(key.rfind("ob_live_", 0), 0u);
  const test::Ended friends = test::Outboard(
      AsWritten("key create --account friend --name laptop --expires 30d --from 203.0.113.0/24"),
      home);
  EXPECT_EQ(friends.code, 0) << friends.err;

  const auto run = [&](const std::string& with_key) {
    return test::RunToEnd({test::kOwnBoxProgram},
                          {"CLOUD=1", "CLOUD_HOST=" + box.last_address(), with_key, "SEED=1"});
  };
  const test::Ended fitted = run("CLOUD_KEY=" + key);
  EXPECT_EQ(fitted.code, 0) << fitted.err;
  EXPECT_EQ(fitted.out, "y = 3.00 x + 1.00\n");
  EXPECT_NE(Page().find("`y = 3.00 x + 1.00`"), std::string::npos);

  const struct {
    std::string with_key, says;
  } wrong[] = {
      {"CLOUD_KEY", "this gateway asks for a key"},
      {"CLOUD_KEY=" + key + "x", "the API key is not valid"},
  };
  for (const auto& c : wrong) {
    const test::Ended ended = run(c.with_key);
    EXPECT_EQ(ended.code, 1);
    EXPECT_NE(ended.err.find(c.says), std::string::npos) << ended.err;
    EXPECT_NE(Page().find("`" + c.says), std::string::npos) << c.says;
  }
  EXPECT_EQ(serve->Stop(SIGINT), 0);
  EXPECT_EQ(test::Outboard(AsWritten("usage"), home).code, 0);
}

// A project of somebody else's gets the client library and nothing that a laptop has no use for.
TEST(OwnBox, InAnotherProjectThereIsTheClientAlone) {
  test::TempFolder project;
  const std::string page = Page();
  const size_t begin = page.find("```cmake\n") + 9;
  std::string lists = page.substr(begin, page.find("```", begin) - begin);
  const std::string clone = "add_subdirectory(outboard)";
  ASSERT_NE(lists.find(clone), std::string::npos);
  lists.replace(lists.find(clone), clone.size(),
                "add_subdirectory(" + std::string(test::kSourceFolder) + " outboard)");
  std::ofstream(project / "CMakeLists.txt") << lists;
  std::ofstream(project / "line.cpp") << "int main() {}\n";
  const test::Ended configured =
      test::RunToEnd({CMAKE_PROGRAM, "-S", project.path(), "-B", project / "build", "-G", "Ninja"});
  ASSERT_EQ(configured.code, 0) << configured.err;
  const std::string rules = test::ReadFile(project / "build/build.ninja");
  EXPECT_NE(rules.find("client/tensor"), std::string::npos);
  for (const std::string part :
       {"libLLVM", "sqlite3", "compiler/schedule", "compiler/kernel", "compiler/render", "/worker/",
        "/gateway/"})
    EXPECT_EQ(rules.find(part), std::string::npos) << part;
}

}  // namespace
}  // namespace outboard
