// The page of `outboard viz` in a real browser, which runs its script and says what came of it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "cli/commands.h"
#include "tests/cli/recorded_programs.h"

namespace outboard::cli {
namespace {

// In the folders of PATH; "" where there is none.
std::string Browser() {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');)
    for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
      if (access((folder + "/" + name).c_str(), X_OK) == 0) return folder + "/" + name;
  return "";
}

class VizBrowserTest : public testing::Test {
 protected:
  void SetUp() override {
    if (browser_.empty()) GTEST_SKIP() << "no chromium in PATH";
  }

  // The document after the script has run, for what stands behind the # of the address.
  std::string DocumentAt(const std::string& place) {
    const std::string command = browser_ + " --headless --disable-gpu" +
                                (geteuid() == 0 ? " --no-sandbox" : "") +
                                " --user-data-dir=" + (folder_ / "profile") +
                                " --virtual-time-budget=10000 --dump-dom 'http://127.0.0.1:" +
                                std::to_string(server_->port()) + "/#" + place + "' 2>/dev/null";
    std::string document;
    FILE* const out = popen(command.c_str(), "r");
    std::array<char, 4096> part;
    for (size_t n; (n = fread(part.data(), 1, part.size(), out)) > 0;)
      document.append(part.data(), n);
    EXPECT_EQ(pclose(out), 0);
    return document;
  }
  static int Count(const std::string& text, const std::string& what) {
    int count = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
      ++count;
    return count;
  }
  // From "<main" on: what is shown of one pass.
  static std::string ViewOf(const std::string& document) {
    return document.substr(document.find("<main"),
                           document.find("</main>") - document.find("<main"));
  }

  const std::string browser_ = Browser();
  const test::TempFolder folder_;
  const std::unique_ptr<PageServer> server_ =
      ValueOrDie(PageServer::Start(0, VizResources(test::RecordTwoPrograms(folder_))));
};

TEST_F(VizBrowserTest, ListsPlansKernelsAndPasses) {
  const std::string document = DocumentAt("");
  EXPECT_NE(document.find("2 plans"), std::string::npos);
  EXPECT_EQ(Count(document, "<option"), 2);
  EXPECT_NE(document.find(">everything</h2>"), std::string::npos);
  EXPECT_NE(document.find(">kernel 0: stores %"), std::string::npos);
  EXPECT_EQ(document.find(">kernel 1"), std::string::npos);
  for (const char* pass : {">schedule<", ">prepare<", ">lower %", ">merge %"})
    EXPECT_NE(document.find(pass), std::string::npos) << pass;
}

TEST_F(VizBrowserTest, AKernelsGraphAfterAPassAndTheRuleThatChangedIt) {
  // plan 0, kernel 0, its first pass: the graph that came out.
  const std::string after = ViewOf(DocumentAt("0.1.0.999"));
  EXPECT_NE(after.find("kernel 0: stores"), std::string::npos);
  EXPECT_NE(after.find("lower: what came out"), std::string::npos);
  for (const char* node : {"STORE", "REDUCE_LOOP", "LOAD f32", "RANGE i64"})
    EXPECT_NE(after.find(node), std::string::npos) << node;
  EXPECT_GT(Count(after, "<g class=\"new\""), 3);
  EXPECT_GT(Count(after, "class=\"rule\""), 0) << "some node says which rule made it";

  const std::string rule = ViewOf(DocumentAt("0.1.0.1"));
  EXPECT_NE(rule.find("lower: rule 1 of "), std::string::npos);
  EXPECT_EQ(Count(rule, "<svg"), 2) << "before and after";
  EXPECT_GT(Count(rule, "<g class=\"gone\""), 0);
}

TEST_F(VizBrowserTest, AnotherPlan) {
  const std::string view = ViewOf(DocumentAt("1.1.1.999"));
  EXPECT_NE(view.find("merge: what came out"), std::string::npos);
  EXPECT_NE(view.find("MUL f32"), std::string::npos);
  EXPECT_EQ(view.find("REDUCE_LOOP"), std::string::npos);
}

}  // namespace
}  // namespace outboard::cli
