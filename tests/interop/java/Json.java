import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A small JSON reader and writer: the releases we drive have no JSON library in common. */
final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** Maps, lists, strings, longs, doubles, booleans and nulls of one JSON text. */
    static Object read(String text) {
        Json json = new Json(text);
        Object value = json.value();
        json.blanks();
        if (json.at != text.length()) throw json.wrong("the end");
        return value;
    }

    /** The JSON text of such values on one line, ASCII only. */
    static String write(Object value) {
        StringBuilder out = new StringBuilder();
        write(value, out);
        return out.toString();
    }

    private Object value() {
        blanks();
        switch (at < text.length() ? text.charAt(at) : ' ') {
            case '{': return map();
            case '[': return list();
            case '"': return string();
            case 't': return word("true", true);
            case 'f': return word("false", false);
            case 'n': return word("null", null);
            default: return number();
        }
    }

    private Map<String, Object> map() {
        Map<String, Object> map = new LinkedHashMap<>();
        at++;
        while (!ends('}', map.isEmpty())) {
            blanks();
            String key = string();
            blanks();
            if (text.charAt(at++) != ':') throw wrong("a colon");
            map.put(key, value());
        }
        return map;
    }

    private List<Object> list() {
        List<Object> list = new ArrayList<>();
        at++;
        while (!ends(']', list.isEmpty())) list.add(value());
        return list;
    }

    private boolean ends(char end, boolean isFirst) {
        blanks();
        if (text.charAt(at) == end) {
            at++;
            return true;
        }
        if (!isFirst && text.charAt(at++) != ',') throw wrong("a comma");
        return false;
    }

    private String string() {
        if (text.charAt(at) != '"') throw wrong("a string");
        StringBuilder out = new StringBuilder();
        for (at++; text.charAt(at) != '"'; at++) {
            char c = text.charAt(at);
            if (c == '\\') {
                c = text.charAt(++at);
                int simple = "bfnrt".indexOf(c);
                if (simple >= 0) {
                    c = "\b\f\n\r\t".charAt(simple);
                } else if (c == 'u') {
                    c = (char) Integer.parseInt(text.substring(at + 1, at + 5), 16);
                    at += 4;
                }
            }
            out.append(c);
        }
        at++;
        return out.toString();
    }

    private Object word(String word, Object value) {
        if (!text.startsWith(word, at)) throw wrong(word);
        at += word.length();
        return value;
    }

    private Object number() {
        int start = at;
        while (at < text.length() && "+-.eE0123456789".indexOf(text.charAt(at)) >= 0) at++;
        String digits = text.substring(start, at);
        try {
            return Long.valueOf(digits);
        } catch (NumberFormatException e) {
            return Double.valueOf(digits);
        }
    }

    private void blanks() {
        while (at < text.length() && text.charAt(at) <= ' ') at++;
    }

    private IllegalArgumentException wrong(String wanted) {
        return new IllegalArgumentException("JSON at " + at + ": expected " + wanted);
    }

    private static void write(Object value, StringBuilder out) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else if (value instanceof Map) {
            String between = "{";
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                out.append(between);
                quote(String.valueOf(entry.getKey()), out);
                out.append(':');
                write(entry.getValue(), out);
                between = ",";
            }
            out.append(between.equals("{") ? "{}" : "}");
        } else if (value instanceof Iterable) {
            String between = "[";
            for (Object item : (Iterable<?>) value) {
                out.append(between);
                write(item, out);
                between = ",";
            }
            out.append(between.equals("[") ? "[]" : "]");
        } else {
            quote(value.toString(), out);
        }
    }

    private static void quote(String value, StringBuilder out) {
        out.append('"');
        for (char c : value.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ' || c > '~') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
