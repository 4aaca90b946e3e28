// What the official Rust client of RocketMQ 5 does against a front; README.md has the scenes.
use std::error::Error;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};

type Seen = Result<Vec<String>, Box<dyn Error>>;

const WITHIN: Duration = Duration::from_secs(40);

struct Scene {
    endpoint: String,
    topic: String,
    group: String,
    credentials: Vec<String>,
}

fn body(view: &MessageView) -> String {
    let body = String::from_utf8_lossy(view.body()).to_string();
    let name = body.trim_end_matches('x');
    if body.len() - name.len() > 1_000 {
        format!("{}*{}", name, body.len() - name.len())
    } else {
        body
    }
}

fn line() {
    println!("HELD");
    let mut text = String::new();
    std::io::stdin().read_line(&mut text).unwrap();
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

impl Scene {
    fn option(&self) -> ClientOption {
        let mut option = ClientOption::default();
        option.set_access_url(self.endpoint.clone());
        option.set_long_polling_timeout(Duration::from_secs(5));
        if let [key, secret] = &self.credentials[..] {
            option.set_access_key(key.clone());
            option.set_secret_key(secret.clone());
        }
        option
    }

    async fn producer(&self) -> Result<Producer, Box<dyn Error>> {
        let mut option = ProducerOption::default();
        option.set_topics(vec![self.topic.clone()]);
        let checker = Box::new(|_: String, view: MessageView| {
            if view.body().starts_with(b"good") {
                TransactionResolution::COMMIT
            } else {
                TransactionResolution::ROLLBACK
            }
        });
        let mut producer = Producer::new_transaction_producer(option, self.option(), checker)?;
        producer.start().await?;
        Ok(producer)
    }

    async fn consumer(&self) -> Result<SimpleConsumer, Box<dyn Error>> {
        let mut option = SimpleConsumerOption::default();
        option.set_topics(vec![self.topic.clone()]);
        option.set_consumer_group(self.group.clone());
        let mut consumer = SimpleConsumer::new(option, self.option())?;
        consumer.start().await?;
        Ok(consumer)
    }

    fn message(&self, body: &str) -> MessageBuilder {
        MessageBuilder::builder().set_topic(self.topic.clone()).set_body(body.as_bytes().to_vec())
    }

    async fn received(
        &self,
        consumer: &SimpleConsumer,
        count: usize,
        hidden_s: u64,
        is_acked: bool,
    ) -> Result<Vec<MessageView>, Box<dyn Error>> {
        let all = FilterExpression::new(FilterType::Tag, "*");
        let mut seen = Vec::new();
        let begun = Instant::now();
        while seen.len() < count && begun.elapsed() < WITHIN {
            let hidden = Duration::from_secs(hidden_s);
            for view in consumer.receive_with(&self.topic, &all, 16, hidden).await? {
                if is_acked {
                    consumer.ack(&view).await?;
                }
                seen.push(view);
            }
        }
        Ok(seen)
    }

    async fn bodies(&self, count: usize) -> Seen {
        let consumer = self.consumer().await?;
        let seen = self.received(&consumer, count, 15, true).await?;
        Ok(seen.iter().map(body).collect())
    }

    async fn simple(&self) -> Seen {
        let producer = self.producer().await?;
        for nth in 0..5 {
            let message = self
                .message(&format!("m{nth}"))
                .set_tag("a")
                .set_keys(vec![format!("k{nth}")])
                .set_properties([("shop", "3")].into());
            producer.send(message.build()?).await?;
        }
        let consumer = self.consumer().await?;
        let seen = self.received(&consumer, 5, 15, true).await?;
        let told = |view: &MessageView| {
            let tag = view.tag().unwrap_or("");
            let shop = view.properties().get("shop").cloned().unwrap_or_default();
            format!("{}:{}:{}:{}", body(view), tag, shop, view.delivery_attempt())
        };
        Ok(seen.iter().map(told).collect())
    }

    async fn fifo(&self) -> Seen {
        let producer = self.producer().await?;
        for nth in 0..20 {
            let group = format!("g{}", nth % 2);
            let message = self.message(&format!("{group}-{nth}")).set_message_group(group);
            producer.send(message.build()?).await?;
        }
        let consumer = self.consumer().await?;
        let seen = self.received(&consumer, 20, 15, true).await?;
        Ok(seen.iter().map(|view| format!("{}:{}", body(view), view.delivery_attempt())).collect())
    }

    async fn delay(&self) -> Seen {
        let producer = self.producer().await?;
        let due_s = now_s() + 3;
        producer.send(self.message("late").set_delivery_timestamp(due_s).build()?).await?;
        let mut seen = self.bodies(1).await?;
        seen.push(if now_s() >= due_s { "due" } else { "early" }.to_string());
        Ok(seen)
    }

    async fn transactions(&self) -> Seen {
        let producer = self.producer().await?;
        for body in ["committed", "rolled-back", "good-orphan", "bad-orphan"] {
            let message = self.message(body).enable_transaction().build()?;
            let transaction = producer.send_transaction_message(message).await?;
            match body {
                "committed" => transaction.commit().await?,
                "rolled-back" => transaction.rollback().await?,
                _ => (),
            }
        }
        self.bodies(2).await
    }

    async fn acked_later(&self) -> Seen {
        let producer = self.producer().await?;
        producer.send(self.message("held").build()?).await?;
        let consumer = self.consumer().await?;
        let seen = self.received(&consumer, 1, 30, false).await?;
        line();
        consumer.ack(&seen[0]).await?;
        Ok(vec![body(&seen[0])])
    }

    async fn ended_later(&self) -> Seen {
        let producer = self.producer().await?;
        let message = self.message("kept").enable_transaction().build()?;
        let transaction = producer.send_transaction_message(message).await?;
        line();
        transaction.commit().await?;
        self.bodies(1).await
    }

    async fn send(&self) -> Seen {
        let producer = self.producer().await?;
        for body in ["short", &format!("long{}", "x".repeat(20_000))] {
            producer.send(self.message(body).build()?).await?;
        }
        Ok(vec!["sent".to_string()])
    }

    async fn play(&self, name: &str) -> Seen {
        match name {
            "simple" => self.simple().await,
            "fifo" => self.fifo().await,
            "delay" => self.delay().await,
            "transactions" => self.transactions().await,
            "ackedLater" => self.acked_later().await,
            "endedLater" => self.ended_later().await,
            "send" => self.send().await,
            "receive" => self.bodies(std::env::var("ESCROW_COUNT")?.parse()?).await,
            _ => Err(format!("no scene {name}").into()),
        }
    }
}

#[tokio::main]
async fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let scene = Scene {
        endpoint: given[1].clone(),
        topic: given[2].clone(),
        group: given[3].clone(),
        credentials: given[4..].to_vec(),
    };
    match scene.play(&given[0]).await {
        Ok(mut seen) => {
            if !["fifo", "delay"].contains(&given[0].as_str()) {
                seen.sort();
            }
            println!("SEEN {}", seen.join(","));
            std::process::exit(0);
        }
        Err(error) => {
            println!("REFUSED {error}");
            std::process::exit(1);
        }
    }
}
