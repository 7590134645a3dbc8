// Parsing requests, by RFC 9112's strict forms: a server that is lenient and one that is not may
// see different requests in the same bytes.
#include "http.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

namespace postern::internal::live {

namespace {

const std::string& value_of(const std::map<std::string, std::string>& in, const std::string& name) {
  static const auto& none = *new std::string;  // read until the process has ended
  const auto found = in.find(name);
  return found == in.end() ? none : found->second;
}

bool is_visible(char c) { return c > ' ' && c < 0x7f; }
bool is_token(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) ||
         (c != '\0' && std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos);
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return {};
    const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0) return {};
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

/// What is before the separator, which is taken off `text` with it.
std::string_view take_until(std::string_view& text, std::string_view separator) {
  const std::size_t at = std::min(text.find(separator), text.size());
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(std::min(at + separator.size(), text.size()));
  return taken;
}

int parse_target(std::string_view target, Request& out) {
  if (target.size() > 2048) return 414;
  if (!target.starts_with('/') || !std::ranges::all_of(target, is_visible)) return 400;
  out.path = take_until(target, "?");
  while (!target.empty()) {
    std::string_view pair = take_until(target, "&");
    const auto name = decoded(take_until(pair, "="));
    const auto value = decoded(pair);
    if (!name || !value) return 400;
    if (!out.query.emplace(*name, *value).second) return 400;
  }
  return 200;
}

int parse_header(std::string_view line, Request& out) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return 400;
  std::string name(line.substr(0, colon));
  if (!std::ranges::all_of(name, is_token)) return 400;
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::string_view value = line.substr(colon + 1);
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!value.empty() && is_space(value.front())) value.remove_prefix(1);
  while (!value.empty() && is_space(value.back())) value.remove_suffix(1);
  const auto is_control = [](unsigned char c) { return (c < ' ' && c != '\t') || c == 0x7f; };
  if (std::ranges::any_of(value, is_control)) return 400;
  // No header that counts here may come twice.
  return out.headers.emplace(std::move(name), value).second ? 200 : 400;
}

/// The body of a request; `rest` is what came behind the head.
Parsed with_body(Request request, std::string_view rest) {
  const std::string& length = request.header("content-length");
  const bool chunked = !request.header("transfer-encoding").empty();
  if (!request.posts) return {chunked || (!length.empty() && length != "0") ? 413 : 200, request};
  if (chunked || length.empty()) return {411};
  if (!request.header("expect").empty()) return {417};
  if (request.header("content-type") != "application/json") return {415};
  std::size_t size = 0;
  const auto [end, error] = std::from_chars(length.data(), length.data() + length.size(), size);
  if (error == std::errc::result_out_of_range) return {413};
  if (error != std::errc() || end != length.data() + length.size()) return {400};
  if (size > longest_body) return {413};
  if (rest.size() > size) return {400};
  if (rest.size() < size) return {0};
  request.body = rest;
  return {200, std::move(request)};
}

}  // namespace

const std::string& Request::asked(const std::string& name) const { return value_of(query, name); }
const std::string& Request::header(const std::string& name) const {
  return value_of(headers, name);
}

Parsed parse_request(std::string_view bytes) {
  const std::size_t end = bytes.find("\r\n\r\n");
  if (end == std::string_view::npos || end + 4 > longest_request)
    return {bytes.size() >= longest_request ? 431 : 0};
  std::string_view head = bytes.substr(0, end);
  std::string_view line = take_until(head, "\r\n");
  const std::string_view method = take_until(line, " "), target = take_until(line, " ");
  if (method.empty() || !std::ranges::all_of(method, is_token)) return {400};
  if (line != "HTTP/1.1" && line != "HTTP/1.0") return {line.starts_with("HTTP/") ? 505 : 400};
  Parsed out{200};
  if (const int status = parse_target(target, out.request); status != 200) return {status};
  while (!head.empty())
    if (const int status = parse_header(take_until(head, "\r\n"), out.request); status != 200)
      return {status};
  out.request.posts = method == "POST";
  if (method != "GET" && !out.request.posts) return {405};
  if (out.request.header("host").empty()) return {400};
  return with_body(std::move(out.request), bytes.substr(end + 4));
}

const char* reason(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 411: return "Length Required";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 421: return "Misdirected Request";
    case 431: return "Request Header Fields Too Large";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
  }
  return "Error";
}

std::string response(int status, std::string_view type, std::string_view body,
                     std::string_view headers) {
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n"
      "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: "
      "no-referrer\r\n{}{}\r\n{}",
      status, reason(status), type, body.size(), status == 405 ? "Allow: GET, POST\r\n" : "",
      headers, body);
}

bool is_own_host(const Request& request, const std::vector<std::string>& names) {
  std::string host = request.header("host");
  host.resize(std::min(host.find(':'), host.size()));  // tunnels have other ports
  in_addr number{};
  return host == "localhost" || ::inet_pton(AF_INET, host.c_str(), &number) == 1 ||
         std::ranges::find(names, host) != names.end();
}

bool is_own_origin(const Request& request) {
  const std::string& origin = request.header("origin");
  return origin.empty() || origin == "http://" + request.header("host");
}

}  // namespace postern::internal::live
