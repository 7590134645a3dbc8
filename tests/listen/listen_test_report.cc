// The report: what stands in it beside what listeners have seen.
#include <fstream>
#include <sstream>

#include "support.h"

namespace postern {
namespace {

using test::has;

/// The rows of a report's table of names, as texts between the cells' ends.
std::vector<std::string> rows_of(const std::string& page, const std::string& part) {
  std::vector<std::string> out;
  for (std::size_t at = 0; (at = page.find("<tr><td>", at)) != std::string::npos; ++at)
    if (const std::string row = page.substr(at, page.find("</tr>", at) - at); has(row, part))
      out.push_back(row);
  return out;
}

TEST(Listen, ReportHasOperationsAtOnceInOneLineAndImagesAndTexts) {
  const test::TemporaryFolder folder;
  const std::string file = folder.path() + "/report.html";
  const auto images = listen::images();
  record_timeline(true);
  const Tensor x = reshape(tensor<float>({1, 2, 3, 4}), {2, 2});
  tap({.name = "picture"}, sort(sin(matmul(x, x)), 0) * tanh(matmul(x, transpose(x))), images);
  record_timeline(false);
  listen::show_text("settings", "a < b\nc");
  report(file);
  listen::show_text("settings", "");
  std::ostringstream read;
  read << std::ifstream(file).rdbuf();
  const std::string page = read.str();
  int compiled = 0;
  for (const std::string& row : rows_of(page, "<td>operations at once</td>"))
    compiled += has(row, "<td>compile</td>");
  EXPECT_EQ(compiled, 1);
  for (const char* name : {"<td>sort</td>", "<td>dot_general</td>", "<td>operation."})
    EXPECT_TRUE(rows_of(page, name).empty()) << name;
  for (const char* part : {"<h2>Images</h2>", "<h3>picture</h3>", "src=\"data:image/png;base64,",
                           "<h2>Texts</h2>", "<h3>settings</h3><pre>a &lt; b\nc\n</pre>"})
    EXPECT_TRUE(has(page, part)) << part;
}

}  // namespace
}  // namespace postern
