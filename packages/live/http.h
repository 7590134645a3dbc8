// Requests of HTTP/1.1 as the live page gets them: GET without a body, and POST with one that is
// JSON and short. Whatever else comes is refused by its status.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace postern::internal::live {

/// A request longer than this is refused, up to where its body begins; and a longer body.
inline constexpr std::size_t longest_request = 8192, longest_body = 4096;

struct Request {
  bool posts = false;                          // else it gets
  std::string path;                            // without the query
  std::map<std::string, std::string> query;    // decoded
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  /// Returns empty for what is not there.
  const std::string& asked(const std::string& name) const;
  const std::string& header(const std::string& name) const;
};

/// `status`: 0 while more has to come, 200 for a request, else what to answer.
struct Parsed {
  int status = 0;
  Request request = {};
};
Parsed parse_request(std::string_view bytes);

/// Returns "Not Found" for 404.
const char* reason(int status);

/// Writes a whole response, after which the connection is closed. `headers` are lines of their own.
std::string response(int status, std::string_view type, std::string_view body,
                     std::string_view headers = "");

/// Returns whether the Host of a request names this server itself: an address as a number,
/// localhost, or one of `names`; the name of another one comes from a page that had its own name
/// mean this machine. And whether an Origin, if there is one, is that very host.
bool is_own_host(const Request& request, const std::vector<std::string>& names);
bool is_own_origin(const Request& request);

}  // namespace postern::internal::live
