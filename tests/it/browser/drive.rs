//! Drives browsers without a window. Chromium is controlled by WebDriver, JSON over HTTP, through
//! chromedriver; Firefox by Marionette, the same commands over its own socket, so that it needs no
//! geckodriver, which Debian lacks.

use std::cell::{Cell, RefCell};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::support::{clean, skipped, temp};

/// The commands that tests give, in both protocols.
const COMMANDS: [(&str, &str); 7] = [
    ("/url", "WebDriver:Navigate"),
    ("/execute/sync", "WebDriver:ExecuteScript"),
    ("/execute/async", "WebDriver:ExecuteAsyncScript"),
    ("/actions", "WebDriver:PerformActions"),
    ("/refresh", "WebDriver:Refresh"),
    ("/back", "WebDriver:Back"),
    ("/window/rect", "WebDriver:SetWindowRect"),
];

pub(super) struct Browser {
    driver: Box<dyn Driver>,
    /// The pages that were opened since [`Browser::check_silent`].
    opened: RefCell<Vec<String>>,
}

trait Driver {
    /// Posts a command by its WebDriver path.
    fn post(&self, path: &str, body: &Json) -> Json;

    fn open(&self, path: &Path) {
        self.post("/url", &json!({ "url": address(path) }));
    }

    fn set_dark(&self, dark: bool);

    /// Console messages of pages and the addresses that they requested, since the last call.
    fn said(&self) -> (Vec<String>, Vec<String>);
}

fn address(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// A process that ends with the test, and its profile and home.
struct Running {
    child: Child,
    folder: TempDir,
}

impl Running {
    /// `None` if the program is not installed.
    fn start(mut command: Command, folder: TempDir) -> Option<Running> {
        command.env("HOME", folder.path()).stdout(Stdio::piped()).stderr(Stdio::null());
        Some(Running { child: command.spawn().ok()?, folder })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Chromium {
    _driver: Running,
    port: u16,
    session: String,
}

impl Chromium {
    fn call(&self, method: &str, path: &str, body: &Json) -> Json {
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let path = format!("{}{path}", self.session);
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            answer.read_line(&mut line).unwrap();
            if let Some((_, value)) =
                line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        answer.read_exact(&mut body).unwrap();
        let answer: Json = serde_json::from_slice(&body).unwrap();
        assert!(answer["value"].get("error").is_none(), "{method} {path}: {answer}");
        answer["value"].clone()
    }
}

impl Driver for Chromium {
    fn post(&self, path: &str, body: &Json) -> Json {
        self.call("POST", path, body)
    }

    fn set_dark(&self, dark: bool) {
        let scheme = if dark { "dark" } else { "light" };
        let dark = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.post("/goog/cdp/execute", &json!({ "cmd": "Emulation.setEmulatedMedia", "params": dark }));
    }

    fn said(&self) -> (Vec<String>, Vec<String>) {
        let console = self.post("/se/log", &json!({ "type": "browser" }));
        let events = self.post("/se/log", &json!({ "type": "performance" }));
        let mut requested: Vec<String> = Vec::new();
        for entry in events.as_array().unwrap() {
            let event: Json = serde_json::from_str(entry["message"].as_str().unwrap()).unwrap();
            if event["message"]["method"] == "Network.requestWillBeSent" {
                requested.push(event["message"]["params"]["request"]["url"].as_str().unwrap().to_owned());
            }
        }
        // The tab was Chromium's own page before.
        requested.retain(|url| !url.starts_with("data:") && !url.starts_with("chrome:"));
        (console.as_array().unwrap().iter().map(Json::to_string).collect(), requested)
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            // Closes the browser, which would outlive its driver; by then the test is over.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                self.call("DELETE", "", &Json::Null)
            }));
        }
    }
}

struct Firefox {
    _browser: Running,
    stream: RefCell<BufReader<TcpStream>>,
    sent: Cell<u64>,
}

impl Firefox {
    /// A message: its length, a colon, and JSON.
    fn receive(&self) -> Json {
        let mut stream = self.stream.borrow_mut();
        let mut length = Vec::new();
        stream.read_until(b':', &mut length).unwrap();
        let length = str::from_utf8(&length).unwrap().trim_end_matches(':').parse().unwrap();
        let mut message = vec![0; length];
        stream.read_exact(&mut message).unwrap();
        serde_json::from_slice(&message).unwrap()
    }

    fn call(&self, command: &str, parameters: &Json) -> Json {
        self.sent.set(self.sent.get() + 1);
        let message = json!([0, self.sent.get(), command, parameters]).to_string();
        write!(self.stream.borrow_mut().get_mut(), "{}:{message}", message.len()).unwrap();
        let answer = self.receive();
        assert!(answer[2].is_null(), "{command}: {}", answer[2]);
        answer[3].get("value").unwrap_or(&answer[3]).clone()
    }

    /// Runs a script with the rights of the browser itself.
    fn run_in_browser(&self, script: &str) -> Json {
        self.call("Marionette:SetContext", &json!({ "value": "chrome" }));
        let value = self.call("WebDriver:ExecuteScript", &json!({ "script": script, "args": [] }));
        self.call("Marionette:SetContext", &json!({ "value": "content" }));
        value
    }
}

impl Driver for Firefox {
    /// A Marionette script sees the properties of the window, but not a page script's `const` and `let`. So
    /// the page evaluates it, as Chromium does.
    fn post(&self, path: &str, body: &Json) -> Json {
        let body = match body.get("script") {
            Some(script) => &json!({
                "script": "return window.eval(`(function () {${arguments[0]}})`)(arguments[1])",
                "args": [script],
            }),
            None => body,
        };
        let (_, command) = COMMANDS.iter().find(|(of, _)| *of == path).expect("a command of COMMANDS");
        self.call(command, body)
    }

    /// The page is shown, and then shown again with a policy that permits evaluation.
    fn open(&self, path: &Path) {
        let open = || self.post("/url", &json!({ "url": address(path) }));
        open();
        let ready = json!({ "script": "return document.body.dataset.ready", "args": [] });
        let end = Instant::now() + Duration::from_secs(60);
        while self.call("WebDriver:ExecuteScript", &ready) != "true" {
            assert!(Instant::now() < end, "{}: the page is not shown", path.display());
            sleep(Duration::from_millis(20));
        }
        let page = fs::read_to_string(path).unwrap();
        fs::write(path, page.replacen("script-src '", "script-src 'unsafe-eval' '", 1)).unwrap();
        open();
    }

    fn set_dark(&self, dark: bool) {
        let set = "Services.prefs.setIntPref('layout.css.prefers-color-scheme.content-override', LIGHT)";
        self.run_in_browser(&set.replace("LIGHT", if dark { "0" } else { "1" }));
    }

    /// Requests are not listed: the policy of the page forbids them, and Firefox reports refused ones in the
    /// console.
    fn said(&self) -> (Vec<String>, Vec<String>) {
        let said = self.run_in_browser(
            "const said = Services.console.getMessageArray(); Services.console.reset(); \
             return said.filter((one) => (one.sourceName ?? '').startsWith('file:')).map(String)",
        );
        (serde_json::from_value(said).unwrap(), Vec::new())
    }
}

impl Browser {
    /// `None` if there is no Chromium here, which is reported; in CI that is a failure.
    pub(super) fn chromium() -> Option<Browser> {
        let folder = temp();
        let profile = format!("--user-data-dir={}", folder.path().join("profile").display());
        let mut command = clean("chromedriver");
        command.arg("--port=0");
        let Some(mut driver) = Running::start(command, folder) else {
            let what =
                "what needs Chromium, which is missing. To install it: apt-get install chromium-driver";
            assert!(std::env::var_os("CI").is_none(), "{what}");
            skipped(what);
            return None;
        };
        let mut lines = BufReader::new(driver.child.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| {
            let line = line.unwrap();
            let (_, port) = line.rsplit_once("started successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        });
        let flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--window-size=1400,1000",
            &profile,
        ];
        let port = port.expect("chromedriver says its port");
        let mut chromium = Chromium { _driver: driver, port, session: String::new() };
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": flags },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        } } });
        let session = chromium.post("/session", &wanted);
        chromium.session = format!("/session/{}", session["sessionId"].as_str().unwrap());
        Some(Browser { driver: Box::new(chromium), opened: RefCell::default() })
    }

    /// `None` if there is no Firefox here, which is reported.
    pub(super) fn firefox() -> Option<Browser> {
        let folder = temp();
        fs::write(folder.path().join("user.js"), "user_pref('marionette.port', 0);").unwrap();
        let mut command = clean("firefox-esr");
        command.args(["--headless", "--no-remote", "--marionette", "--remote-allow-system-access"]);
        command.args(["--width", "1400", "--height", "1000", "--profile"]).arg(folder.path());
        let Some(browser) = Running::start(command, folder) else {
            skipped("what needs Firefox, which is missing. To install it: apt-get install firefox-esr");
            return None;
        };
        let port = browser.folder.path().join("MarionetteActivePort");
        let end = Instant::now() + Duration::from_secs(120);
        let port = loop {
            if let Ok(port) = fs::read_to_string(&port).unwrap_or_default().trim().parse::<u16>() {
                break port;
            }
            assert!(Instant::now() < end, "Firefox does not start");
            sleep(Duration::from_millis(50));
        };
        let stream = RefCell::new(BufReader::new(TcpStream::connect(("127.0.0.1", port)).unwrap()));
        let firefox = Firefox { _browser: browser, stream, sent: Cell::new(0) };
        // It begins with its name.
        firefox.receive();
        firefox.call("WebDriver:NewSession", &json!({ "capabilities": {} }));
        Some(Browser { driver: Box::new(firefox), opened: RefCell::default() })
    }

    pub(super) fn post(&self, path: &str, body: &Json) -> Json {
        self.driver.post(path, body)
    }

    /// Opens a page, and waits until it is drawn.
    pub(super) fn open(&self, path: &Path) {
        self.driver.open(path);
        self.opened.borrow_mut().push(address(path));
        self.wait();
    }

    /// Waits until the page is drawn.
    pub(super) fn wait(&self) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.run("return document.body.dataset.ready") != "true" {
            assert!(Instant::now() < end, "{}", self.run("return document.body.innerText"));
            sleep(Duration::from_millis(20));
        }
    }

    pub(super) fn run(&self, script: &str) -> Json {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Runs a script, and waits until its changes are drawn.
    pub(super) fn change(&self, script: &str) {
        let waits = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done));";
        self.post("/execute/async", &json!({ "script": format!("{script}; {waits}"), "args": [] }));
    }

    /// Shows pages in dark or in light colours.
    pub(super) fn set_dark(&self, dark: bool) {
        self.driver.set_dark(dark);
        self.change("");
    }

    /// Fails if pages wrote anything to the console, or requested anything but themselves.
    pub(super) fn check_silent(&self) {
        let opened = self.opened.take();
        let (console, mut requested) = self.driver.said();
        assert_eq!(console, [""; 0]);
        requested.retain(|url| !opened.contains(url));
        assert_eq!(requested, [""; 0]);
    }
}
